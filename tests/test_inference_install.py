"""What `pip install regard[inference]` promises: without torch, models translate, generate and are served."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from family import FAMILY
from random_models import SMALL, random_network, saved
from regard.config import (
    Config,
    DecoderOnlyConfig,
    EncoderDecoderConfig,
    LearnedPositionsConfig,
    ModelConfig,
    RelativePositionsConfig,
    SinusoidalPositionsConfig,
)
from regard.errors import ModelError
from regard.interop.exporters import unsupported_reason
from regard.interop.weight_arrays import read_arrays, stored_shapes
from regard.models.assembly import build_meta
from regard.models.folder import load_network, named_tensors, write_model_weights
from regard.models.folder_files import WEIGHTS_FILE

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
MISSING = ("torch", "matplotlib", "sacrebleu", "transformers", "gensim", "pandas", "pyarrow", "fsspec", "ray")
PROGRAM = f"""
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout

sys.modules.update(dict.fromkeys({MISSING!r}))  # importing them fails
from regard.cli import main

def run(*arguments):
    out, err, sys.argv = io.StringIO(), io.StringIO(), ["regard", *arguments]
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as stop:
            return [stop.code, out.getvalue().strip(), err.getvalue().strip()]

translator, writer, results = sys.argv[1], sys.argv[2], {{}}
for name in ("first", "again"):  # the model is converted, then the conversion is used
    results[f"translate, {{name}}"] = run("translate", translator, "w5 w6", "--max-tokens", "6")
results["generate"] = run("generate", writer, "--prompt", "w5", "--max-tokens", "3", "--temperature", "0")
results["torch"] = run("translate", translator, "w5 w6", "--engine", "torch")
results["prefix"] = run("translate", translator, "w5 w6", "--prefix", "w5")
for command in ("train tiny --data x.tsv", "evaluate {{}} --data x", "look {{}} w5", "model tiny", "plan tiny", "demo"):
    name, *arguments = command.format(translator).split()
    results[name] = run(name, *arguments)

import regard
results["python"] = regard.load(translator).translate(["w5 w6"], max_tokens=6)
try:
    regard.train
except ImportError as error:
    results["regard.train"] = str(error)

from fastapi.testclient import TestClient
from regard.serving.app import build_app
from regard.serving.loaded_models import load_models
from regard.serving.service import Service

models = load_models([translator, writer], languages=("en", "it"))
client = TestClient(build_app(Service(models)), base_url="http://localhost")
for path, body in {{
    "/translate": {{"q": "w5 w6", "source": "en", "target": "it"}},
    "/v1/completions": {{"model": "writer", "prompt": "w5", "max_tokens": 3, "temperature": 0}},
    "/v1/look/tree": {{"id": "x"}},
}}.items():
    response = client.post(path, json=body)
    results[path] = [response.status_code, response.json()]
from regard.decoding.constrained import Grammar
results["grammar"] = Grammar.of_regex("yes|no").name
results["imported"] = [name for name in {MISSING!r} if sys.modules[name] is not None]
print(json.dumps(results))
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Outputs of commands and routes in a process in which the packages of all extras are missing."""
    home = tmp_path_factory.mktemp("inference")
    saved(home / "translator", EncoderDecoderConfig(**SMALL))
    positions = LearnedPositionsConfig(max_length=40)
    saved(home / "writer", DecoderOnlyConfig(**SMALL, norm_order="pre", positions=positions), seed=1)
    call = [sys.executable, "-c", PROGRAM, str(home / "translator"), str(home / "writer")]
    environment = os.environ | {"COLUMNS": "200", "OMP_NUM_THREADS": "1", "HOME": str(home)}
    done = subprocess.run(call, capture_output=True, text=True, env=environment, cwd=home)
    assert done.returncode == 0, done.stderr
    output: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return output


@pytest.mark.slow
def test_models_translate_generate_and_are_served_without_torch(results: dict[str, Any]) -> None:
    code, translation, _ = results["translate, first"]
    assert code == 0
    assert len(translation.split()) == 6
    assert results["translate, again"] == results["translate, first"]
    assert results["python"] == [translation]
    assert results["grammar"] == "regex"  # is read; only its use needs torch
    code, text, _ = results["generate"]
    assert code == 0
    assert len(text.split()) == 4
    status, answer = results["/translate"]
    assert status == 200
    assert answer["translatedText"].startswith(translation)
    status, answer = results["/v1/completions"]
    assert status == 200
    assert f"w5{answer['choices'][0]['text']}" == text
    assert results["imported"] == []


@pytest.mark.slow
def test_what_needs_torch_says_how_to_install_it(results: dict[str, Any]) -> None:
    for command in ("train", "evaluate", "look", "model", "plan", "demo"):
        code, out, err = results[command]
        assert (code, out) == (1, "")
        assert err == f"regard: regard {command} needs PyTorch; install it with: pip install 'regard[train]'."
    assert results["torch"][2].startswith("regard: PyTorch is needed because the engine torch was requested;")
    assert results["prefix"][2].startswith("regard: PyTorch is needed because a prefix is set;")
    assert results["torch"][0] == results["prefix"][0] == 1
    assert results["regard.train"] == "regard.train needs PyTorch; install it with: pip install 'regard[train]'."
    status, answer = results["/v1/look/tree"]
    assert status == 501
    assert answer == {"error": "/v1/look needs PyTorch; install it with: pip install 'regard[train]'."}


def test_dependencies_are_those_of_inference() -> None:
    def names(requirements: list[str]) -> set[str]:
        return {requirement.partition(">")[0].partition("[")[0] for requirement in requirements}

    extras = PROJECT["optional-dependencies"]
    assert names(extras["train"]) == {"torch", "matplotlib", "sacrebleu"}
    assert extras["inference"] == []
    assert not names(PROJECT["dependencies"]) & names(extras["train"])
    assert set(extras["train"]) <= {requirement.partition(" #")[0] for requirement in extras["dev"]}


NETWORKS: dict[str, ModelConfig] = {
    **FAMILY,
    "relative": EncoderDecoderConfig(**SMALL, positions=RelativePositionsConfig(max_distance=3)),
    "concatenated": DecoderOnlyConfig(
        **SMALL, positions=SinusoidalPositionsConfig(combine="concatenate"), tie_output=False, embedding_norm=True
    ),
    "grouped": EncoderDecoderConfig(**SMALL, kv_heads=2, attention_bias=True, norm_order="pre", decoder_layers=3),
}


@pytest.mark.parametrize(
    "name", [name for name, model in NETWORKS.items() if not unsupported_reason(Config(model=model))]
)
def test_shapes_without_torch_are_those_of_the_network(name: str) -> None:
    model = NETWORKS[name]
    assert isinstance(model, EncoderDecoderConfig | DecoderOnlyConfig)
    assert stored_shapes(model) == {key: tuple(t.shape) for key, t in named_tensors(build_meta(model)).items()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_arrays_are_the_tensors_of_the_network(dtype: torch.dtype, tmp_path: Path) -> None:
    model = EncoderDecoderConfig(**SMALL)
    network, _ = saved(tmp_path / "model", model)
    tensors = {name: tensor.to(dtype).contiguous() for name, tensor in named_tensors(network).items()}
    save_file(tensors, tmp_path / "model" / WEIGHTS_FILE)
    expected = load_network(tmp_path / "model").network.state_dict()
    arrays = read_arrays(tmp_path / "model", model)
    assert arrays.keys() == expected.keys()
    for name, tensor in expected.items():
        np.testing.assert_array_equal(arrays[name], tensor.float().numpy(), err_msg=name)


def test_arrays_of_weights_in_several_files(tmp_path: Path) -> None:
    model, folder = EncoderDecoderConfig(**SMALL), tmp_path / "model"
    network, _ = saved(folder, model)
    (folder / WEIGHTS_FILE).unlink()
    write_model_weights(folder, named_tensors(network), shard_bytes=4096)
    assert len(list(folder.glob("model-*-of-*.safetensors"))) > 2
    arrays = read_arrays(folder, model)
    for name, tensor in network.state_dict().items():
        np.testing.assert_array_equal(arrays[name], tensor.numpy(), err_msg=name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"decoder.layers.0.feed_forward.inner.weight": None}, "has no tensor decoder.layers.0.feed_"),
        ({"encoder.embedding.weight": torch.zeros(3, 4)}, "has encoder.embedding.weight of shape 3×4, but config.json"),
        ({"extra": torch.zeros(1)}, "has a tensor extra, which config.json does not describe"),
        ({"encoder.embedding.weight": torch.zeros(29, 24).int()}, "has tensors of the types F32, I32"),
    ],
)  # fmt: skip
def test_weights_that_do_not_fit_are_refused(
    change: dict[str, torch.Tensor | None], message: str, tmp_path: Path
) -> None:
    model, path = EncoderDecoderConfig(**SMALL), tmp_path / WEIGHTS_FILE
    tensors = {**named_tensors(random_network(model)), **change}
    save_file({name: tensor.contiguous() for name, tensor in tensors.items() if tensor is not None}, path)
    with pytest.raises(ModelError) as error:
        read_arrays(tmp_path, model)
    assert str(error.value).startswith(f"{path}: {message}")


def test_a_damaged_or_missing_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / WEIGHTS_FILE
    with pytest.raises(ModelError, match=r"model\.safetensors: is missing"):
        read_arrays(tmp_path, EncoderDecoderConfig(**SMALL))
    path.write_bytes(b"\x08\x00\x00\x00\x00\x00\x00\x00not json")
    with pytest.raises(ModelError, match=r"model\.safetensors: is damaged"):
        read_arrays(tmp_path, EncoderDecoderConfig(**SMALL))
