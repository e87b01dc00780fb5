"""Batch tasks as callables over columns: what Ray, Dask and Spark call."""

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import regard
from random_models import SMALL, saved
from regard.batch import BatchTask, Classify, Embed, Generate, Translate
from regard.config import ClassHeadConfig, EncoderOnlyConfig
from regard.errors import ConfigError, InputError

TEXTS = ["w4 w9 w12", "w20 w5", "", "w7 w7"]


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "classifier"
    saved(folder, EncoderOnlyConfig(**SMALL, segments=2, head=ClassHeadConfig(labels=("bad", "good"))))
    return folder


def test_columns_become_columns_with_results(translator: Path, writer: Path) -> None:
    model = regard.load(translator, threads=1)
    translations = model.translate(TEXTS, beam=2, max_tokens=5)
    translate = Translate(translator, "en", "it", beam=2, max_tokens=5)
    assert translate({"en": TEXTS, "n": [1, 2, 3, 4]}) == {"en": TEXTS, "n": [1, 2, 3, 4], "it": translations}
    arrays = translate({"en": np.array(TEXTS, object)})
    assert isinstance(arrays["it"], np.ndarray)
    assert arrays["it"].tolist() == translations
    frame = translate(pd.DataFrame({"en": TEXTS}))
    assert list(frame.columns) == ["en", "it"]
    assert frame["it"].tolist() == translations
    continuations = regard.load(writer).generate(TEXTS, max_tokens=4, seed=1)
    assert Generate(writer, max_tokens=4, seed=1)({"text": TEXTS})["continuation"] == continuations


def test_labels_and_vectors(classifier: Path) -> None:
    model = regard.load(classifier)
    expected = model.classify_detailed([TEXTS[0], TEXTS[1], TEXTS[3]])
    labels = Classify(classifier, probabilities=True)({"text": TEXTS})
    assert labels["label"] == [expected[0].label, expected[1].label, None, expected[2].label]  # none of a blank text
    assert labels["probabilities"][3] == pytest.approx(expected[2].probabilities)
    pairs = Classify(classifier, "a", second_column="b")({"a": TEXTS[:2], "b": TEXTS[1::-1]})
    assert pairs["label"] == model.classify([(TEXTS[0], TEXTS[1]), (TEXTS[1], TEXTS[0])])
    vectors = Embed(classifier, normalize=True)({"text": np.array(TEXTS)})["vector"]
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, model.embed(TEXTS, normalize=True), atol=1e-5)


def test_a_task_is_pickled_without_its_model(translator: Path) -> None:
    translate = Translate(translator, max_tokens=5)
    before = translate({"text": TEXTS})
    content = pickle.dumps(translate)
    assert len(content) < 1000
    assert pickle.loads(content)({"text": TEXTS}) == before


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "row 2 of the batch: no text in the column 'text'; fill it in, or pass skip_invalid=True."),
        (float("nan"), "row 2 of the batch: no text in the column 'text'; fill it in, or pass skip_invalid=True."),
        (5, "row 2 of the batch: the column 'text' has a value of type int, not a text; convert it, or pass"),
        ("\ud800", "row 2 of the batch: the column 'text' has half of a surrogate pair; remove it, or pass"),
    ],
)
def test_invalid_rows_are_named_or_skipped(translator: Path, value: Any, message: str) -> None:
    with pytest.raises(InputError) as error:
        Translate(translator, max_tokens=5)({"text": ["w4", value]})
    assert str(error.value).startswith(message)
    skipped = Translate(translator, max_tokens=5, skip_invalid=True)({"text": ["w4", value, "w5"]})
    alone = Translate(translator, max_tokens=5)({"text": ["w4", "w5"]})["translation"]
    assert skipped["translation"] == [alone[0], None, alone[1]]


def test_a_row_that_the_network_cannot_process_does_not_affect_others(
    translator: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = ["w4", "w5 w6", "w7", "w8", "w9"]
    expected = Translate(translator, max_tokens=4)({"text": rows})["translation"]
    process = Translate.process

    def refuse_some(task: Translate, model: Any, texts: list[Any]) -> Any:
        refused = next((text for text in texts if text in ("w7", "w9")), None)
        if refused:
            raise InputError(f"{refused} is too long.")
        return process(task, model, texts)

    monkeypatch.setattr(Translate, "process", refuse_some)
    results = Translate(translator, max_tokens=4).process_columns({"text": rows})
    assert {n: error.message for n, error in results.errors.items()} == {2: "w7 is too long", 4: "w9 is too long"}
    assert results.columns["translation"] == [expected[0], expected[1], None, expected[3], None]


def test_missing_and_conflicting_columns(translator: Path, writer: Path) -> None:
    with pytest.raises(ConfigError, match=r"the batch has no column 'en'; its columns are text, n\."):
        Translate(translator, "en")({"text": TEXTS, "n": [1, 2, 3, 4]})
    with pytest.raises(ConfigError, match=r"en: is a column of the input and of the output"):
        Translate(translator, "en", "en")
    with pytest.raises(ConfigError, match=r"which does not translate; use an encoder-decoder model"):
        Translate(writer).check()


@pytest.mark.slow
def test_importing_the_package_imports_neither_torch_nor_ray() -> None:
    code = "import sys, regard.batch as b; b.Translate; b.run; print('torch' in sys.modules, 'ray' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"


def test_all_tasks_have_a_name_and_columns(translator: Path) -> None:
    from regard.batch.tasks import TASKS

    assert list(TASKS) == ["translate", "generate", "classify", "embed"]
    tasks: list[BatchTask] = [create(translator) for create in TASKS.values()]
    assert [next(iter(task.columns)) for task in tasks] == ["translation", "continuation", "label", "vector"]
