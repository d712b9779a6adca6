"""The command line: mathfuse info, plan, explain, tune, bench, cache."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mathfuse as mf

GRAMMAR = """problems:
  matmul:bf16:8192x512x512+bias+silu+residual    m x n x k, then what follows
  fft:c64:65536*1024+filter+ifft                 batch * n
  conv:f32:64*4096x65   solve:f32:10000*16x1   softmax:bf16:8192x4096   map:f32:4194304+mul+tanh   and more: docs/tuning.md
  package.module:function(f32[64,32],f32[32])    a Python function, and its arrays
  or a file with one problem a line."""


LOST = 3  # the exit status of mathfuse bench when a kernel has failed: a new process can go on, with --resume


def _problems(given: Sequence[str]) -> list[Any]:
    from mathfuse._problems import gather

    return gather(given)


def _target(device: str) -> str | None:
    return None if device == "cpu" else device


def _default_device() -> str:
    try:
        return "cuda" if mf.Context("cuda").can_run else "cpu"
    except mf.Error:
        return "cpu"


def _info(given: argparse.Namespace) -> int:
    print(mf.info(given.target, json=given.json))
    return 0


def _explain(given: argparse.Namespace) -> int:
    found = []
    for problem in _problems(given.problem):
        plan = problem.plan(_target(given.device or _default_device()), providers=given.providers, tune=given.tune)
        if given.json:
            found.append({"problem": problem.text, **json.loads(plan.explain("json"))})
        else:
            print(f"{problem.text}\n{plan.explain()}")
    if given.json:
        print(json.dumps(found, indent=1))
    return 0


def _profile(given: argparse.Namespace) -> int:
    found = []
    for problem in _problems(given.problem):
        profile = problem.plan(_target(given.device or _default_device())).profile(given.seconds)
        found.append({"problem": problem.text, **profile})
        if not given.json:
            print(f"{problem.text}\n{profile}")
    if given.json:
        print(json.dumps(found, indent=1))
    return 0


class _Progress:
    """What is tried, the time left, where results go: by rich on a terminal that has it, else by plain lines."""

    def __init__(self, quiet: bool, total: int) -> None:
        self.bar: Any = None
        self.number, self.total, self.text = 0, total, ""
        self.plain: Any = None
        if quiet:
            return
        if sys.stderr.isatty():
            try:
                from rich.console import Console
                from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

                self.bar = Progress(
                    TextColumn("{task.fields[which]}"), BarColumn(), TimeRemainingColumn(), TextColumn("{task.description}"),
                    console=Console(stderr=True), transient=True,
                )  # fmt: skip
                self.task = self.bar.add_task("", total=1.0, which="")
                self.bar.start()
                self.bar.console.print(f"results go to {mf.tuning.database()}")
                return
            except ImportError:
                pass
        self.plain = mf.tuning._Display(sys.stderr)

    def begin(self, text: str) -> None:
        self.number += 1
        self.text = text
        if self.plain:
            print(f"mathfuse: {self.number} of {self.total}: {text}", file=sys.stderr)

    def __call__(self, event: dict[str, Any]) -> None:
        if self.plain:
            self.plain(event)
        if self.bar:
            whole = event["elapsed_s"] + event["left_s"]
            best = f", best {event['best_us']:.1f} of {event['default_us']:.1f} us" if event["best_us"] else ""
            doing = "trying" if event["stage"] == "prepare" else f"racing {event['alive']}"
            self.bar.update(
                self.task,
                completed=event["elapsed_s"] / whole if whole else 0.0,
                which=f"{self.number}/{self.total} {self.text[:50]}",
                description=f"{doing} {event['candidate'][:60]}{best}",
            )

    def close(self) -> None:
        if self.bar:
            self.bar.stop()
        if self.plain:
            self.plain.close()


def _tune(given: argparse.Namespace) -> int:
    problems = _problems(given.problem)
    progress = _Progress(given.quiet or given.json, len(problems))
    found: list[dict[str, Any]] = []
    status = 0
    try:
        for problem in problems:
            progress.begin(problem.text)
            plan = problem.plan(_target(given.device or _default_device()), tune="cached")
            fresh = given.again or plan.tuning["source"] == "default" or not plan.tuning["complete"]
            if fresh:
                plan.tune(progress=progress, seconds=given.seconds, candidates=given.candidates)
            found.append({"given": problem.text, **plan.tuning})
    except KeyboardInterrupt:
        status = 130
        if progress.number > len(found):
            found.append({"given": problem.text, **plan.tuning})
    finally:
        progress.close()
    if given.json:
        print(json.dumps(found, indent=1))
    else:
        for result in found:
            print(f"{result['given']}\n{mf.tuning.Tuning(result)}\n")
        if status:
            print("mathfuse: interrupted; what was measured is kept", file=sys.stderr)
    return status


def _bench(given: argparse.Namespace) -> int:
    from mathfuse import _bench, _peers, _provenance, _report

    if given.resume and not given.output:
        raise ValueError("--resume needs --output, the file to go on with")
    budget = _bench.Budget(given.budget)
    device = given.device or _default_device()
    peers = given.peers.split(",") if given.peers else None
    problems = _problems(given.problem)
    taking = [] if peers == ["none"] else peers
    if taking != []:
        for name, why in _peers.absent(device).items():
            print(f"mathfuse: without {name}: {why}", file=sys.stderr)
    result: dict[str, Any] = {"device": device, "provenance": _provenance.collect(), "rows": []}
    if given.resume and Path(given.output).exists():
        result["rows"] = _bench.finished(_report.load(given.output), problems)
    done = {row["problem"] for row in result["rows"]}
    problems = [p for p in problems if p.text not in done]
    status = 0

    def begun(problem: Any) -> None:
        result["running"] = problem.text
        _keep(result, given.output)

    try:
        rows = _bench.rows(problems, device, taking, tune=given.tune, rounds=given.rounds, budget=budget, begun=begun)
        for row in rows:
            result["rows"].append(row)
            result.pop("running", None)
            _keep(result, given.output)
            if not given.json:
                print(_row_text(row), flush=True)
    except KeyboardInterrupt:
        status = 130
        print("mathfuse: interrupted; what was measured is kept", file=sys.stderr)
    _keep(result, given.output)
    if given.json:
        print(json.dumps(result, indent=1, ensure_ascii=False))
    elif given.output:
        print(_report.markdown(result))
    if not status and result["rows"] and result["rows"][-1].get("lost"):
        return LOST
    wrong = [row for row in result["rows"] if "failed" in row or "mathfuse" in row.get("skipped", {})]
    return status or (1 if wrong else 0)


def _keep(result: dict[str, Any], output: str | None) -> None:
    """The file is always whole: what was measured so far, or what was before."""
    if output:
        path = Path(output)
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(path.name + ".new")
        fresh.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        fresh.replace(path)


def _row_text(row: dict[str, Any]) -> str:
    if "failed" in row:
        return f"{row['problem']}\n    FAILED: {row['failed']}"
    if row.get("not_reached"):
        return f"{row['problem']}\n    not reached in time"
    lines = [row["problem"]]
    for name, us in sorted(row["us"].items(), key=lambda item: item[1]):
        low, high = row["interval"][name]
        share = f", {100 * row['bound_us'] / us:.0f} % of the roofline" if name.startswith("mathfuse") else ""
        lines.append(f"    {us:12.2f} us  ({low:.2f} to {high:.2f})  {name}; error {row['error'][name]:.1e}{share}")
    lines += [f"    {us:12.2f} us  {name}" for name, us in row["reference"].items() if us]
    lines += [f"    without {name}: {why}" for name, why in row["skipped"].items()]
    return "\n".join(lines)


def _report_command(given: argparse.Namespace) -> int:
    from mathfuse import _report

    for path in given.file:
        result = _report.load(path)
        print(_report.markdown(result))
        if given.plots:
            for written in _report.plots(result, Path(given.plots), given.format):
                print(f"wrote {written}", file=sys.stderr)
    return 0


def _compare(given: argparse.Namespace) -> int:
    from mathfuse import _report

    changes = _report.compare(_report.load(given.before), _report.load(given.after), given.threshold)
    if given.json:
        print(json.dumps(changes, indent=1))
    else:
        for c in changes:
            print(f"{c['verdict']:<7} {c['ratio']:.3f}  {c['before_us']:.2f} -> {c['after_us']:.2f} us  {c['problem']}")
        if not changes:
            print("no problem is in both files")
    return 1 if any(c["verdict"] == "slower" for c in changes) else 0


def _cache(given: argparse.Namespace) -> int:
    action, path, rest = given.action, given.database, given.argument
    wanted = {"export": 1, "import": 1, "merge": 1}
    if action in wanted and not rest:
        raise ValueError(f"mathfuse cache {action} needs a file")
    word = rest[0] if rest else None
    if action in ("list", "show"):
        records = mf.tuning.records(word, path=path, whole=action == "show")
        if given.json:
            print(json.dumps(records, indent=1))
        elif action == "show":
            for r in records:
                print(mf.tuning.Tuning({**r, "source": "database"}), "\n")
        else:
            for r in records:
                gain = r["default_us"] / r["winner_us"] if r["winner_us"] else 0.0
                print(
                    f"{r['problem'][:12]} {gain:6.3f} x {r['winner_us']:10.2f} us  {r['title']}  [{r['device']}]  {r['winner']}"
                )
            print(f"{len(records)} records in {path or mf.tuning.database()}")
        return 0
    if action == "verify":
        faults = mf.tuning.verify(path)
        print("\n".join(faults) or "sound")
        return 1 if faults else 0
    if action == "path":
        print(mf.tuning.database())
        return 0
    if action == "clear":
        count = mf.tuning.clear(word, path=path)
        kernels = _clear_kernels() if given.kernels else 0
        print(f"{count} records removed" + (f", {kernels} files of compiled kernels" if given.kernels else ""))
        return 0
    changes: dict[str, Callable[..., int]] = {"export": mf.tuning.export, "import": mf.tuning.load, "merge": mf.tuning.merge}
    count = changes[action](word, path=path)
    print(f"{count} records {'written to' if action == 'export' else 'taken from'} {word}")
    return 0


def _clear_kernels() -> int:
    directory = Path(mf.tuning.database()).parent
    files = [f for kind in ("cubin", "ptx", "ltoir") for f in directory.glob(f"{kind}-*")]
    for f in files:
        f.unlink(missing_ok=True)
    shutil.rmtree(directory / "emulated", ignore_errors=True)
    return len(files)


def _add_problem(parser: argparse.ArgumentParser, device: bool = True) -> None:
    parser.add_argument("problem", nargs="+", help="a problem, or a file of problems")
    if device:
        parser.add_argument("--device", help='"cpu", "cuda", "cuda:1"; default: a GPU if there is one')
    parser.add_argument("--json", action="store_true", help="machine-readable")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = GRAMMAR


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mathfuse", description="Fused linear algebra and FFT on CPUs and GPUs.")
    parser.add_argument("--version", action="version", version=f"mathfuse {mf.__version__}")
    commands = parser.add_subparsers(dest="command", required=True)

    info = commands.add_parser("info", help="the libraries found on this machine, and what is missing")
    info.add_argument("target", nargs="?", help='a device or target to describe too: "cuda", "cuda:1", "sm_90a"')
    info.add_argument("--json", action="store_true", help="machine-readable")
    info.set_defaults(call=_info)

    for name, text in (("plan", "how problems would run, and why"), ("explain", "the same as plan")):
        plan = commands.add_parser(name, help=text)
        _add_problem(plan, device=False)
        plan.add_argument("--device", "--target", help='"cpu", "cuda", or a GPU that is not here: "sm_80", "sm_90a", "sm_100a"')
        plan.add_argument("--providers", help='"ref,blas": only these; "-cublaslt": all but these')
        plan.add_argument("--tune", choices=("off", "cached", "measure", "require"), help="whether tuning records count")
        plan.set_defaults(call=_explain)

    profile = commands.add_parser("profile", help="each step's time beside the roofline")
    _add_problem(profile)
    profile.add_argument("--seconds", type=float, default=1.0, help="for each problem (1)")
    profile.set_defaults(call=_profile)

    tune = commands.add_parser("tune", help="measure the ways to run problems, remember the fastest right ones")
    _add_problem(tune)
    tune.add_argument("--seconds", type=float, default=10.0, help="for each problem (10)")
    tune.add_argument("--candidates", type=int, default=64, help="most to try for each step (64)")
    tune.add_argument("--again", action="store_true", help="also what is in the database already")
    tune.add_argument("--quiet", action="store_true", help="no progress")
    tune.set_defaults(call=_tune)

    bench = commands.add_parser("bench", help="measure problems beside peers; or: report FILE, compare BEFORE AFTER")
    _add_problem(bench)
    bench.add_argument("--peers", help='"torch,NumPy": only these; "none"; default: all that are here')
    bench.add_argument("--tune", type=float, default=0.0, metavar="SECONDS", help="tune our plans first, for so long each")
    bench.add_argument("--rounds", type=int, default=15, help="samples of each candidate (15)")
    bench.add_argument("--budget", type=float, metavar="SECONDS", help="for all problems; what is not reached is listed")
    bench.add_argument("--resume", action="store_true", help="keep what the output file has, and measure the rest")
    bench.add_argument("--output", help="a JSON file for the results, with where they were measured")
    bench.set_defaults(call=_bench)

    report = commands.add_parser("report", help="benchmark results as a table, losing rows first")
    report.add_argument("file", nargs="+")
    report.add_argument("--plots", metavar="DIRECTORY", help="also plots, with matplotlib")
    report.add_argument("--format", choices=("svg", "png"), default="svg")
    report.set_defaults(call=_report_command)

    compare = commands.add_parser("compare", help="two benchmark results: what became slower or faster beyond the noise")
    compare.add_argument("before")
    compare.add_argument("after")
    compare.add_argument("--threshold", type=float, default=0.02, help="changes below this share are none (0.02)")
    compare.add_argument("--json", action="store_true", help="machine-readable")
    compare.set_defaults(call=_compare)

    cache = commands.add_parser("cache", help="the tuning database")
    cache.add_argument("action", choices=("path", "list", "show", "export", "import", "merge", "verify", "clear"))
    cache.add_argument("argument", nargs="*", help="a filter (list, show, clear) or a file (export, import, merge)")
    cache.add_argument("--database", help="another database than the user's own")
    cache.add_argument("--kernels", action="store_true", help="with clear: compiled kernels too")
    cache.add_argument("--json", action="store_true", help="machine-readable")
    cache.set_defaults(call=_cache)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["bench"] and given[1:2] and given[1] in ("report", "compare"):
        given = given[1:]
    options = _parser().parse_args(given)
    sys.path.insert(0, os.getcwd())  # for module:function
    try:
        return int(options.call(options))
    except (mf.Error, ValueError, OSError, ImportError) as error:
        print(f"mathfuse: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        return 141


if __name__ == "__main__":
    sys.exit(main())
