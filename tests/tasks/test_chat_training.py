"""Fine-tuning on conversations and on preferences: what is learned, what is not, and every malformed line."""

import json
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from commands import regard
from regard import load
from regard.config import Config, CorpusConfig, DecoderOnlyConfig, RotaryPositionsConfig, TokenizerConfig
from regard.data.chat import ChatTemplate, load_chat_template
from regard.data.conversation_batches import ConversationBatches, PreferenceBatches
from regard.data.conversations import (
    Conversation,
    Preference,
    encode_conversation,
    encode_preference,
    read_conversations,
)
from regard.data.lines import InvalidLines
from regard.data.preparation import TRUNCATED
from regard.data.store import open_store, write_store
from regard.data.tokenizer import Tokenizer, load_tokenizer, train_tokenizer
from regard.models import Network, build, load_network, save
from regard.models.adapter_files import Adapter
from regard.models.folder import load_merged
from regard.nn.lora import linear_layers
from regard.tasks.chat import chat_tokens
from regard.tasks.dpo import _tensors
from regard.training.chat_objectives import ChatObjective, PreferenceObjective, answer_log_probabilities
from regard.training.trained_parts import adapt
from small_runs import lines, numbers

WORDS = ["red", "green", "blue", "one", "two", "three"]
SETTINGS = [
    *("--set", "training.batch_tokens=256", "--set", "training.steps=4", "--set", "validation.every=4"),
    *("--set", "training.threads=1", "--set", "training.patience=0", "--set", "validation.samples=2", "--quiet"),
]
LORA = ("--set", "training.lora.rank=4")


def conversations(count: int) -> list[dict[str, Any]]:
    made = []
    for n in range(count):
        messages = [{"role": "system", "content": "Repeat."}] if n % 3 == 0 else []
        for turn in range(1 + n % 2):
            word = WORDS[(n + turn) % len(WORDS)]
            messages += [
                {"role": "user", "content": f"Say {word} {n}."},
                {"role": "assistant", "content": f"{word} {word}"},
            ]
        made.append({"messages": messages})
    return made


def preferences(count: int) -> list[dict[str, Any]]:
    words = [WORDS[n % len(WORDS)] for n in range(count)]
    return [{"prompt": f"Say {word} {n}.", "chosen": word, "rejected": "No."} for n, word in enumerate(words)]


def write(path: Path, records: Sequence[object]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    return path


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random network with rotary positions, grouped heads and a byte-level tokenizer."""
    texts = [str(message["content"]) for chat in conversations(40) for message in chat["messages"]]
    tokenizer = train_tokenizer(texts, TokenizerConfig(kind="byte-level"), 290)
    torch.manual_seed(0)
    model = DecoderOnlyConfig(
        vocab_size=len(tokenizer),
        width=32,
        layers=2,
        heads=4,
        kv_heads=2,
        feed_forward=48,
        activation="swiglu",
        norm="rms",
        norm_order="pre",
        positions=RotaryPositionsConfig(),
        dropout=0.0,
    )
    folder = tmp_path_factory.mktemp("chat") / "base"
    save(folder, build(model), Config(model=model), extra_files={"tokenizer.json": tokenizer.to_json()})
    return folder


@pytest.fixture(scope="module")
def template(base: Path) -> ChatTemplate:
    tokenizer = load_tokenizer(base / "tokenizer.json")
    return load_chat_template(base, tokenizer, load_network(base).config.tokens)


def plain_log_probabilities(network: Network, ids: Sequence[int], learned: Sequence[int]) -> Tensor:
    """log p of the learned tokens of one conversation."""
    tokens = torch.tensor(ids)
    logits = network.logits(network.decode(tokens[None, :-1]))[0].double()
    log_p = logits.log_softmax(-1)[torch.arange(len(tokens) - 1), tokens[1:]]
    return log_p[torch.tensor(learned[1:]).bool()]


# --- conversations ----------------------------------------------------------------------------------------------------


def test_packed_conversations_have_the_loss_of_each_alone(base: Path, template: ChatTemplate, tmp_path: Path) -> None:
    rows = [
        encode_conversation(template, Conversation(tuple(record["messages"])), 1000, Counter())
        for record in conversations(9)
    ]
    encoded = [row for row in rows if row is not None]
    write_store(tmp_path / "store", encoded, 2, 300, {})
    store = open_store(tmp_path / "store")
    assert store is not None
    network = load_network(base).network
    column, learned = store.columns
    # padding must not look like the 1 that marks a token of the assistant
    tokens = load_network(base).config.tokens.model_copy(update={"pad": 1, "unknown": 0})
    source = ConversationBatches(column, 128, 256, tokens, seed=3, learned=learned)
    loss = targets = 0.0
    with torch.no_grad():
        plans = source.plan(0)
        for spans in plans:
            batch = chat_tokens(source.chats(spans))
            assert batch.features is not None
            result = ChatObjective(network, 0.0)(batch)
            loss, targets = loss + float(result.loss), targets + result.targets
            assert result.targets == batch.targets
        assert max(len(set(spans[:, 0].tolist())) for spans in plans) > 1
        assert any(len(spans) > len(set(spans[:, 0].tolist())) for spans in plans)  # some rows have several
        alone = [plain_log_probabilities(network, *row) for row in encoded]
    assert targets == sum(map(len, alone)) == sum(sum(row[1]) for row in encoded)
    assert loss == pytest.approx(-float(torch.cat(alone).sum()), rel=1e-5)
    parts = [source.chats(plans[0], rank, 2) for rank in (0, 1)]  # of two processes
    assert sum(int(part.learned.sum()) for part in parts) == int(source.chats(plans[0]).learned.sum())


def test_only_answers_are_learned_and_long_conversations_cut(template: ChatTemplate, base: Path) -> None:
    tokenizer: Tokenizer = load_tokenizer(base / "tokenizer.json")
    (record,) = conversations(2)[1:]
    counts = Counter[str]()
    row = encode_conversation(template, Conversation(tuple(record["messages"])), 1000, counts)
    assert row is not None
    ids, learned = row
    assert (
        tokenizer.decode([token for token, mark in zip(ids, learned, strict=True) if mark]) == " green green blue blue"
    )
    first = list(learned).index(1)
    cut = encode_conversation(template, Conversation(tuple(record["messages"])), first + 2, counts)
    assert cut is not None
    assert (len(cut[0]), sum(cut[1])) == (first + 2, 2)
    assert encode_conversation(template, Conversation(tuple(record["messages"])), first, counts) is None
    assert counts == {"kept": 2, TRUNCATED: 1, f"no answer in the first {first} tokens": 1}


@pytest.fixture(scope="module")
def tuned(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tuned")
    data, valid = write(folder / "train.jsonl", conversations(30)), write(folder / "valid.jsonl", conversations(7))
    out = folder / "run"
    options: list[str | Path] = ["--data", data, "--valid", valid, "--from", base, "--out", out, *LORA]
    done = regard("train", "chat", *options, *SETTINGS)
    assert done.code == 0, done.err
    done_wrong = regard("train", "gpt", "--data", data, "--out", folder / "gpt")
    assert "no text under 'text'" in done_wrong.err
    assert "conversations are for regard train chat" in done_wrong.err
    assert "Validation (step 4): loss" in done.out
    return out


def test_a_chat_model_is_trained_from_the_command_line(base: Path, tuned: Path) -> None:
    assert (tuned / "best" / "adapter.safetensors").exists()
    assert load(tuned).chat_template.is_own  # what the base, without a template, learned to write
    valid = tuned.parent / "valid.jsonl"
    (validated,) = [line["valid"] for line in lines(tuned) if "valid" in line]
    scores = {}
    for model in (base, tuned):
        done = regard("evaluate", model, "--data", valid, "--json")
        assert done.code == 0, done.err
        scores[model] = json.loads(done.out)["scores"]["loss"]
    assert scores[tuned] == pytest.approx(validated["loss"], rel=1e-5)
    assert scores[tuned] < scores[base]
    samples = lines(tuned, "samples.jsonl")
    assert [sample["reference"] for sample in samples] == [" red red", " two two"]
    assert all(sample["source"].endswith("assistant:") for sample in samples)
    assert regard("generate", tuned, "--max-tokens", "3", stdin="user: Say red.\nassistant:").code == 0


def test_a_chat_template_goes_with_the_model(base: Path, tuned: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    for path in base.iterdir():
        (model / path.name).write_bytes(path.read_bytes())
    template = "{% for message in messages %}{{ message.role }}>{{ message.content }}\n{% endfor %}"
    (model / "chat_template.jinja").write_text(template + "{% if add_generation_prompt %}assistant>{% endif %}")
    options: list[str | Path] = ["--data", tuned.parent / "train.jsonl", "--from", model, "--out", tmp_path / "run"]
    done = regard("train", "chat", *options, *SETTINGS, "--set", "training.steps=1", "--set", "validation.every=1")
    assert done.code == 0, done.err
    assert (tmp_path / "run" / "best" / "chat_template.jinja").read_text().startswith(template)
    assert lines(tmp_path / "run", "samples.jsonl")[0]["source"].endswith("assistant>")
    assert lines(tmp_path / "run", "samples.jsonl")[0]["reference"].endswith("\n")


USER, ANSWER = {"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}


@pytest.mark.parametrize(
    ("line", "facts"),
    [
        ('{"messages": [', ["not valid JSON", "fix it"]),
        ('["messages"]', ["nothing under 'messages'", '{"messages": [{"role": "user"']),
        ({"text": "Hi."}, ["nothing under 'messages'"]),
        ({"messages": "Hi."}, ["messages: should be a list of messages"]),
        ({"messages": []}, ["messages: there are none"]),
        ({"messages": [{"content": "Hi."}, ANSWER]}, ["message 1: role should be a text"]),
        ({"messages": [USER, {"role": "assistant"}]}, ["message 2: content should be a text, not missing"]),
        ({"messages": [USER, {"role": "bot", "content": "Hello."}]}, ["message 2: unknown role 'bot'", "assistant"]),
        ({"messages": [USER]}, ["no message has the role assistant", "add an answer"]),
        ({"messages": [USER, {"role": "assistant", "content": " "}]}, ["message 2: the assistant's content is empty"]),
        ('{"messages": [{"role": "user", "content": "\\ud800"}, {"role": "assistant", "content": "a"}]}', ["half of"]),
    ],
)
def test_malformed_conversations(base: Path, tmp_path: Path, line: object, facts: list[str]) -> None:
    text = line if isinstance(line, str) else json.dumps(line)
    path = tmp_path / "chats.jsonl"
    path.write_text(json.dumps({"messages": [USER, ANSWER]}) + "\n" + text + "\n")
    done = regard("train", "chat", "--data", path, "--from", base, "--out", tmp_path / "run", *SETTINGS)
    assert done.code == 3
    assert done.err.startswith(f"regard: {path}:2: ")
    assert all(fact in done.err for fact in facts), done.err
    assert "--skip-invalid" in done.err
    assert done.err.count("\n") == 1
    invalid = InvalidLines(skip=True)
    assert len(list(read_conversations(CorpusConfig(files=(str(path),)), invalid))) == 1
    assert sum(invalid.counts.values()) == 1


def test_a_template_that_refuses_a_conversation_names_its_line(base: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    for path in base.iterdir():
        (model / path.name).write_bytes(path.read_bytes())
    refuse = "{% if messages[0].role == 'system' %}{{ raise_exception('No system prompt.') }}{% endif %}"
    body = "{% for message in messages %}{{ message.content }}|{% endfor %}"
    (model / "chat_template.jinja").write_text(refuse + body)
    data = write(tmp_path / "chats.jsonl", [{"messages": [{"role": "system", "content": "a"}, USER, ANSWER]}] * 2)
    done = regard("train", "chat", "--data", data, "--from", model, "--out", tmp_path / "run", *SETTINGS)
    assert done.code == 3
    assert f"{data}:1: " in done.err
    assert "No system prompt" in done.err


def test_training_needs_a_language_model_to_start_from(tmp_path: Path) -> None:
    data = write(tmp_path / "chats.jsonl", conversations(3))
    for task in ("chat", "dpo"):
        done = regard("train", task, "--data", data, "--out", tmp_path / "run", "--quiet")
        assert done.code == 2
        assert "pass --from MODEL" in done.err


# --- preferences ------------------------------------------------------------------------------------------------------


def encoded_preferences(template: ChatTemplate, folder: Path) -> tuple[PreferenceBatches, list[Any]]:
    records = preferences(5)
    records[2] = {
        "prompt": [*conversations(2)[1]["messages"], USER],
        "chosen": [ANSWER],
        "rejected": ANSWER["content"] * 3,
    }
    rows = []
    for record in records:
        prompt = record["prompt"]
        messages = tuple(prompt) if isinstance(prompt, list) else ({"role": "user", "content": prompt},)
        chosen = record["chosen"][0]["content"] if isinstance(record["chosen"], list) else record["chosen"]
        rows.append(encode_preference(template, Preference(messages, chosen, record["rejected"]), 1000, Counter()))
    write_store(folder / "store", [row for row in rows if row is not None], 4, 300, {})
    store = open_store(folder / "store")
    assert store is not None
    first, second, third, fourth = store.columns
    return PreferenceBatches((first, second, third, fourth), 400, Config(model=DecoderOnlyConfig()).tokens), rows


def test_preferences_compare_the_network_with_its_base(base: Path, template: ChatTemplate, tmp_path: Path) -> None:
    source, rows = encoded_preferences(template, tmp_path)
    plan = source.plan(0)
    assert len(plan) > 1
    assert sorted(pair for batch in plan for pair in batch.tolist()) == list(range(5))
    reference = load_network(base).network
    network = load_network(base).network
    layers = tuple(linear_layers(network))
    adapt(network, Adapter("", "", 4, 8.0, layers), dropout=0.5)
    adapted = PreferenceObjective(network.train(), beta=0.3)
    with torch.no_grad():  # before training, both are equal
        network.eval()
        rewards = [adapted.rewards(_tensors(source, pairs)) for pairs in plan]
        assert all(float(part.margins.abs().max()) == 0 for part in rewards)
        assert float(adapted(_tensors(source, plan[0])).loss) == pytest.approx(len(plan[0]) * math.log(2))
        for name, parameter in network.named_parameters():
            if name.endswith("lora_b"):
                parameter.normal_(0, 0.3)
    network.train()  # the reference has no dropout
    with torch.no_grad():
        for pairs in plan:
            batch = _tensors(source, pairs)
            expected = [
                plain_log_probabilities(reference, rows[pair][side], rows[pair][side + 2]).sum()
                for side in (0, 1)
                for pair in pairs.tolist()
            ]
            torch.testing.assert_close(
                adapted.reference_log_probabilities(batch).double(), torch.stack(expected), atol=1e-4, rtol=1e-5
            )
            assert network.training
            network.eval()
            policy = answer_log_probabilities(network, batch).double()
            chosen, rejected = (0.3 * (policy - torch.stack(expected))).chunk(2)
            loss = -(chosen - rejected).sigmoid().log().sum()
            torch.testing.assert_close(adapted(batch).loss.double(), loss, atol=1e-4, rtol=1e-4)
            separate = PreferenceObjective(network, 0.3, reference)  # a reference of its own
            torch.testing.assert_close(separate(batch).loss, adapted(batch).loss, atol=1e-5, rtol=1e-5)
            network.train()
    adapted(_tensors(source, plan[0])).loss.backward()
    trained = {name for name, parameter in network.named_parameters() if parameter.grad is not None}
    assert trained == {f"{layer}.{part}" for layer in layers for part in ("lora_a", "lora_b")}
    assert not list(PreferenceObjective(network, 0.3, reference).children())[1:]  # the reference is not trained


def test_an_answer_is_the_last_turn_only(template: ChatTemplate, base: Path) -> None:
    tokenizer = load_tokenizer(base / "tokenizer.json")
    earlier = conversations(2)[1]["messages"]
    row = encode_preference(template, Preference((*earlier, USER), "yes", "no no"), 1000, Counter())
    assert row is not None
    answers = [
        tokenizer.decode([token for token, mark in zip(row[side], row[side + 2], strict=True) if mark])
        for side in (0, 1)
    ]
    assert answers == [" yes", " no no"]
    counts = Counter[str]()
    assert encode_preference(template, Preference((USER,), "yes", "no"), 8, counts) is None
    assert counts == {"longer than 8 tokens": 1}


@pytest.mark.parametrize("lora", [LORA, ()], ids=["LoRA", "all weights"])
def test_preferences_are_learned_from_the_command_line(base: Path, tmp_path: Path, lora: tuple[str, ...]) -> None:
    data = write(tmp_path / "pairs.jsonl", preferences(40))
    valid = write(tmp_path / "valid.jsonl", preferences(6))
    options: list[str | Path] = [
        "--data",
        data,
        "--valid",
        valid,
        "--from",
        base,
        "--out",
        tmp_path / "run",
        *SETTINGS,
        *lora,
    ]
    done = regard("train", "dpo", *options, "--set", "training.schedule.learning_rate=0.01")
    assert done.code == 0, done.err
    (scores,) = [line["valid"] for line in lines(tmp_path / "run") if "valid" in line]
    assert scores["accuracy"] > 0.9
    assert scores["margin"] == pytest.approx(scores["chosen_reward"] - scores["rejected_reward"])
    assert scores["margin"] > 0
    assert scores["loss"] < math.log(2)
    assert load_merged(tmp_path / "run").network


@pytest.mark.parametrize(
    ("record", "fact"),
    [
        ({"prompt": "Hi.", "chosen": "a"}, "no answer under 'rejected'"),
        ({"prompt": "Hi.", "chosen": "a", "rejected": "a"}, "chosen and rejected are equal"),
        ({"prompt": "Hi.", "chosen": " ", "rejected": "a"}, "chosen is empty"),
        ({"chosen": "a", "rejected": "b"}, "nothing under 'messages'"),
        ({"messages": [USER, ANSWER], "chosen": "a", "rejected": "b"}, "the last message is the assistant's"),
        ({"prompt": "Hi.", "chosen": [USER], "rejected": "b"}, "no answer under 'chosen'"),
    ],
)
def test_malformed_preferences(base: Path, tmp_path: Path, record: object, fact: str) -> None:
    data = write(tmp_path / "pairs.jsonl", [*preferences(1), record])
    done = regard("train", "dpo", "--data", data, "--from", base, "--out", tmp_path / "run", *SETTINGS)
    assert done.code == 3
    assert done.err.startswith(f"regard: {data}:2: ")
    assert fact in done.err
    assert done.err.count("\n") == 1


def test_settings_that_preferences_cannot_use(base: Path, tmp_path: Path) -> None:
    data = write(tmp_path / "pairs.jsonl", preferences(4))
    options: list[str | Path] = ["--data", data, "--from", base, "--out", tmp_path / "run", *SETTINGS]
    done = regard("train", "dpo", *options, "--set", "training.rdrop=1", "--set", "model.dropout=0.1")
    assert done.code == 2
    assert "training.rdrop cannot be used for preference pairs" in done.err


@pytest.mark.parametrize("task", ["chat", "dpo"])
def test_runs_resume_bit_by_bit(base: Path, tmp_path: Path, task: str) -> None:
    records = conversations(20) if task == "chat" else preferences(20)
    data = write(tmp_path / "data.jsonl", records)
    fixed = ("--set", "training.schedule.kind=constant", "--set", "validation.every=2", "--set", "training.log_every=1")
    settings = [*SETTINGS, *LORA, "--set", "training.lora.dropout=0.1", *fixed]
    for name, steps in (("whole", 4), ("parts", 2)):
        out = tmp_path / name
        options: list[str | Path] = ["--data", data, "--valid", data, "--from", base, "--out", out, *settings]
        assert regard("train", task, *options, "--set", f"training.steps={steps}").code == 0
    resumed = regard("train", "--resume", "--out", tmp_path / "parts", "--set", "training.steps=4", "--quiet")
    assert resumed.code == 0, resumed.err
    assert numbers(tmp_path / "parts") == numbers(tmp_path / "whole")


def test_muon_trains_the_matrices_of_lora_with_adamw(base: Path, tmp_path: Path) -> None:
    data = write(tmp_path / "data.jsonl", conversations(20))
    options: list[str | Path] = ["--data", data, "--from", base, "--out", tmp_path / "run", *SETTINGS, *LORA]
    done = regard("train", "chat", *options, "--set", "training.optimizer.kind=muon", "--set", "training.steps=1")
    assert done.code == 0, done.err
