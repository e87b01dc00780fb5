"""Start-up: seconds from starting a command to its result, next to CTranslate2 and transformers.

    python benchmarks/startup.py --model runs/demo

Every command runs in a new process, in turns, round after round; the first round is left out, because it converts the
model and fills the file cache. The others translate the same line from what `regard export` writes: CTranslate2 with
the tokenizers library, and `generate` of transformers.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from common import print_markdown, with_spread

LINE = "I love you very much.\n"
REGARD = "regard translate, one line"
CTRANSLATE2 = """
import sys, ctranslate2, tokenizers
folder, line = sys.argv[1] + "/ctranslate2", sys.stdin.read().strip()
tokenizer = tokenizers.Tokenizer.from_file(folder + "/tokenizer.json")
translator = ctranslate2.Translator(folder, device="cpu")
(result,) = translator.translate_batch([tokenizer.encode(line).tokens], beam_size=4)
ids = [tokenizer.token_to_id(token) for token in result.hypotheses[0]]
print(tokenizer.decode(ids))
"""
TRANSFORMERS = """
import sys
from transformers import AutoTokenizer, MarianMTModel
folder, line = sys.argv[1] + "/huggingface", sys.stdin.read().strip()
tokenizer, model = AutoTokenizer.from_pretrained(folder), MarianMTModel.from_pretrained(folder).eval()
print(tokenizer.batch_decode(model.generate(**tokenizer([line], return_tensors="pt"), num_beams=4, max_length=60)))
"""


def seconds(command: list[str]) -> float:
    """Return the seconds that a command takes to translate a line."""
    start = time.perf_counter()
    subprocess.run(command, input=LINE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    return time.perf_counter() - start


def main() -> None:
    """Measure all commands in turns, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", type=Path, required=True, help="translator: a run or model folder")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()

    from regard.interop import export_ctranslate2, export_huggingface
    from regard.models.folder_files import resolve_model_folder

    model = resolve_model_folder(options.model)
    regard = [sys.executable, "-c", "from regard.cli import main; main()"]
    with TemporaryDirectory() as folder:
        export_ctranslate2(model, Path(folder) / "ctranslate2", "int8")
        export_huggingface(model, Path(folder) / "huggingface")
        commands = {
            REGARD: [*regard, "translate", str(model)],
            "CTranslate2 and tokenizers, one line": [sys.executable, "-c", CTRANSLATE2, folder],
            "transformers, one line": [sys.executable, "-c", TRANSFORMERS, folder],
            "regard --help": [*regard, "--help"],
            "python -c pass": [sys.executable, "-c", "pass"],
        }
        results: dict[str, list[float]] = {name: [] for name in commands}
        for turn in range(options.rounds + 1):
            for name, command in commands.items():
                measured = seconds(command)
                if turn:
                    results[name].append(measured)
    reference = median(results[REGARD])
    rows = [(name, with_spread(runs, ".2f"), f"{median(runs) / reference:.2f}×") for name, runs in results.items()]
    print_markdown([("", "seconds", "relative to regard translate"), *rows])


if __name__ == "__main__":
    main()
