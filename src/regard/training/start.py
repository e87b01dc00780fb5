"""`train`: from settings to a finished run, new or resumed."""

import tomllib
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import torch

from regard.config import Config, DecoderOnly, EncoderDecoder, Source, check, to_toml
from regard.config.complaint import origin
from regard.errors import ConfigError, DataError, InterruptedRun, RegardError, RunError
from regard.models import build
from regard.text.prepare import Prepared, key_of, spooled
from regard.text.scan import Report
from regard.text.tokenizer import load_tokenizer, special_tokens
from regard.training.allocator import keep_freed_memory
from regard.training.checkpoint import Checkpoint, checkpoints
from regard.training.display import Display
from regard.training.environment import environment, matmul_gflops
from regard.training.finish import finish
from regard.training.interrupts import Wish, wish_to_stop
from regard.training.language import LanguageKind
from regard.training.loop import Loop
from regard.training.picks import NAME, Pick, source_of
from regard.training.processes import Processes, joined
from regard.training.random import seed_step
from regard.training.report import write_report
from regard.training.resume import changed
from regard.training.run import Run
from regard.training.task import Kind
from regard.training.translation import TranslationKind

SPOOL = "standard-input"


@dataclass(frozen=True)
class Order:
    """What the user asked for."""

    sources: Sequence[Source]  # settings, the later ones to win; what is picked comes after the first
    out: Path
    resume: bool = False
    pick: bool = False  # let the data choose what the user did not
    command: Sequence[str] = ()


def train(config: Config, out: str | Path, *, resume: bool = False, display: Display | None = None) -> Run:
    """Train with these settings; everything is in the folder `out` afterwards. `resume` goes on with a run there.

    config = regard.resolve("tiny", ["data.train.files=pairs.tsv", "training.steps=2000"])
    run = regard.train(config, "runs/mine")
    model = regard.load(run.folder / "best")
    """
    given = Source("regard.train", config.model_dump(mode="json", exclude_unset=True))
    return carry_out(Order([given], Path(out), resume=resume, command=["regard.train"]), display)


def carry_out(order: Order, display: Display | None = None) -> Run:
    """Train, or go on training, and write the run folder.

    Under `torchrun` every process calls this; the first of them reads, writes and speaks for all.
    """
    keep_freed_memory()
    run = Run(order.out)
    with ExitStack() as until_done:
        processes = until_done.enter_context(joined())
        wish = until_done.enter_context(wish_to_stop())
        display = display if processes.first and display is not None else Display()
        until_done.callback(display.close)
        if processes.first:
            until_done.enter_context(run.held())
            if order.resume and run.exists:
                _go_on(run, order, display)
            elif not order.sources:
                raise ConfigError(f"{run.folder}: holds no run to go on with; check --out.")
            else:
                _begin(run, order, display, wish)
        processes.wait()
        return _train(run, processes, display, wish)


def kind_of(config: Config) -> Kind:
    """What is trained follows from the network."""
    match config.model:
        case EncoderDecoder():
            return TranslationKind()
        case DecoderOnly():
            return LanguageKind()
        case _:
            raise ConfigError(
                f"model.kind = {config.model.kind!r} cannot be trained yet; use 'encoder-decoder' or 'decoder-only'."
            )


def _begin(run: Run, order: Order, display: Display, wish: Wish) -> None:
    """Settle the settings of a new run, and write them down."""
    if run.exists:
        raise RunError(f"{run.folder}: holds a run already; add --resume to go on with it, or choose another --out.")
    run.clear()
    (run.folder / SPOOL).unlink(missing_ok=True)  # what came through standard input of an attempt that never began
    sources = list(order.sources)
    config = check(sources)
    if config.tokenizer.file is not None:
        sources = [*sources[:1], _from_tokenizer(Path(config.tokenizer.file)), *sources[1:]]
        config = check(sources)
    kind = kind_of(config)
    kind.check(config)
    if not config.data.train.given:
        raise ConfigError("there is nothing to learn from; give --source and --target, or --data.")
    picks: list[Pick] = []
    if order.pick:
        scan = kind.scan(_at_hand(run, config, read=True), _reporting(run, display, wish))
        if scan.characters == 0:
            raise DataError(f"{', '.join(config.data.train.names)}: has nothing to learn from; give more text.")
        picks = kind.picks(scan, config)
        sources = [sources[0], source_of(picks), *sources[1:]]
        config = check(sources)
        picks = [pick for pick in picks if origin([pick.setting.split(".")], sources) == NAME]  # not overruled
        for pick in picks:
            display.note(f"{pick.setting} = {pick.value}: {pick.why}.")
    key = key_of(_at_hand(run, config, read=True))
    run.write(run.config.name, to_toml(config, sources))
    run.update_about(
        name=run.folder.resolve().name,
        command=list(order.command),
        started=_now(),
        finished=None,
        status="begun",
        task=kind.name,
        key=key,
        choices=[{"setting": pick.setting, "value": str(pick.value), "why": pick.why} for pick in picks],
    )


def _go_on(run: Run, order: Order, display: Display) -> None:
    """Settle the settings of a run that resumes: its own, and what the user changes."""
    before = _config(run)
    own = Source(str(run.config), tomllib.loads(run.config.read_text("utf-8")))
    sources = [own, *order.sources]
    after = check(sources)
    for note in changed(before, after, sources):
        display.note(note)
    data = _at_hand(run, after, read=False)
    gone = [name for name in data.data.names if not _is_there(name)]
    if not gone and key_of(data) != run.read_about()["key"]:
        raise RunError(
            f"{run.folder}: its data files are not what they were when it began; put them back, or start a new run."
        )
    if after != before:
        run.write(run.config.name, to_toml(after, sources))


def _train(run: Run, processes: Processes, display: Display, wish: Wish) -> Run:
    config = _config(run)
    if config.training.threads is not None:
        torch.set_num_threads(config.training.threads)
    kind, about = kind_of(config), run.read_about()
    if processes.first:
        prepared = _prepare(run, kind, config, about["key"], display, wish)
        run.write("tokenizer.json", prepared.tokenizer.to_json().decode())
    processes.wait()
    if not processes.first:
        prepared = _prepare(run, kind, config, about["key"], display, wish)
    asked, config = config.model.vocabulary, _fitted(config, prepared)
    if config.model.vocabulary != asked:
        display.note(f"The tokenizer has {config.model.vocabulary:,} tokens; model.vocabulary = {asked} was the wish.")
    seed_step(config.training.seed, 0)
    network = build(config.model)
    task = kind.begin(config, prepared, network)
    ceiling = matmul_gflops(processes.device)
    loop = Loop(
        run, config, task, wish=wish, ceiling=processes.world * ceiling * 1e9, processes=processes, display=display
    )
    if processes.first:
        parameters = sum(parameter.numel() for parameter in network.parameters())
        run.update_about(
            status="training",
            parameters=parameters,
            environment=environment(processes.world, ceiling),
            data={name: part.counts() for name, part in prepared.parts.items()},
        )
        for name, part in prepared.parts.items():
            for sentence in part.left_out():
                display.note(f"{name}: {sentence}.")
        display.note(f"{config.model.family[0].upper()}{config.model.family[1:]}, {parameters:,} parameters.")
    checkpoint = _last_whole(run, display)
    if checkpoint is not None:
        loop.restore(checkpoint)
        display.note(f"Going on from step {checkpoint.state.step:,}.")
    if processes.first:
        run.clear()
        run.cut(loop.state.sizes)
    status = _watched(run, loop)
    if processes.first:
        _conclude(run, loop, status)
    processes.wait()
    return run


def _watched(run: Run, loop: Loop) -> str:
    """Train; whatever ends it is noted in run.json."""
    try:
        return loop.train()
    except (InterruptedRun, RunError) as error:
        if loop.processes.first:
            with suppress(RegardError):  # what ended the run, such as a full disk, is what the user must read
                run.update_about(status="interrupted" if isinstance(error, InterruptedRun) else str(error))
                write_report(run.folder)
        raise


def _conclude(run: Run, loop: Loop, status: str) -> None:
    results = finish(loop)
    if results.outputs:
        run.write_json("outputs.json", results.outputs)
    run.update_about(status=status, finished=_now(), results=results.scores, signatures=results.signatures)
    write_report(run.folder)


def _prepare(run: Run, kind: Kind, config: Config, key: str, display: Display, wish: Wish) -> Prepared:
    folder = Path(config.data.store) / key[:16] if config.data.store else run.data
    return kind.prepare(folder, key, _at_hand(run, config, read=False), _reporting(run, display, wish))


def _fitted(config: Config, prepared: Prepared) -> Config:
    """The settings of the network, whose vocabulary is the tokenizer's."""
    tokenizer = prepared.tokenizer
    model = config.model.model_dump(mode="json") | {"vocabulary": len(tokenizer)}
    if model.get("target_vocabulary"):
        raise ConfigError("model.target_vocabulary cannot be trained: one tokenizer serves both sides; leave it out.")
    values = config.model_dump(mode="json") | {"model": model}
    return check([Source("the tokenizer", values)])


def _from_tokenizer(path: Path) -> Source:
    """What a tokenizer that is given settles."""
    tokenizer = load_tokenizer(path)
    return Source(str(path), {"model": {"vocabulary": len(tokenizer)}, "tokens": special_tokens(tokenizer, path)})


def _last_whole(run: Run, display: Display) -> Checkpoint | None:
    damaged = ""
    for found in checkpoints(run.checkpoints):
        if isinstance(found, Checkpoint):
            return found
        damaged = found
        display.note(f"{found}; going on from the one before it.")
    if damaged:
        raise RunError(f"{damaged}, and there is none before it; start a new run with another --out.")
    return None


def _config(run: Run) -> Config:
    try:
        text = run.config.read_text("utf-8")
        return check([Source(str(run.config), tomllib.loads(text), text)])
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise RunError(f"{run.config}: cannot be read ({error}); start a new run.") from None


def _at_hand(run: Run, config: Config, *, read: bool) -> Config:
    """The settings with standard input replaced by a copy of what came through it."""
    return config.model_copy(update={"data": spooled(config.data, run.folder / SPOOL, read=read)})


def _reporting(run: Run, display: Display, wish: Wish) -> Report:
    def report(what: str, count: int) -> None:
        if wish.made:
            raise InterruptedRun(f"{run.folder}: stopped while {what}; go on with --resume.")
        display.counting(what, count, None)

    return report


def _is_there(name: str) -> bool:
    return name.startswith("builtin:") or Path(name).exists()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
