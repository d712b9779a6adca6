"""Rules of the source tree: who may include whom, how long things get, what is not written."""

import collections
import json
import pathlib
import re
import subprocess
import tomllib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = subprocess.run(
    ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
).stdout.splitlines()
FILES = [f for f in FILES if (ROOT / f).is_file()]
C_FILES = [f for f in FILES if f.endswith((".c", ".h", ".cuh"))]
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.MULTILINE)
VENDOR = re.compile(r"^(cublas|cufft|cusolver|nvrtc|nvJitLink|cuda|fftw3|cblas|lapacke|mkl|blis|openblas)\w*\.h$")
MAY_INCLUDE_VENDOR = re.compile(r"^src/host/providers/|^src/fusion/jit\w*\.c$|^src/host/(loader|cuda)\w*\.[ch]$|^bench/device/")

# From the inside out: a file may include what lies in its own layer or before it.
LAYERS = ("include/mathfuse/def/", "include/mathfuse/", "src/host/", "src/fusion/", "src/host/providers/")
# fusion.h is how the core's plan reaches the planner's passes and providers the chains; providers list: by name only.
INTERFACE = {"src/fusion/fusion.h"}


def text(name):
    return (ROOT / name).read_text(encoding="utf-8", errors="replace")


def code(name):
    """The text without comments and the contents of strings."""
    pattern = r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
    blank = lambda m: re.sub(r"[^\n]", " ", m[0])  # noqa: E731
    return re.sub(pattern, blank, text(name), flags=re.DOTALL)


def includes(name):
    return INCLUDE.findall(text(name))


def layer(name):
    """The index of the innermost layer that the path lies in; None outside the library."""
    best = None
    for i, prefix in enumerate(LAYERS):
        if name.startswith(prefix) and (best is None or len(prefix) > len(LAYERS[best])):
            best = i
    return best


BY_NAME = collections.defaultdict(list)
for _f in C_FILES:
    if _f.startswith("src/"):
        BY_NAME[pathlib.PurePosixPath(_f).name].append(_f)


def resolved(included):
    """The file of the project that an include names, or None for one of the system."""
    if included.startswith("mathfuse/"):
        return "include/" + included
    found = BY_NAME.get(pathlib.PurePosixPath(included).name, [])
    return found[0] if found else None


@pytest.mark.parametrize("name", [f for f in C_FILES if f.startswith(("include/", "src/")) and f.endswith((".c", ".h"))])
def test_include_direction(name):
    own = layer(name)
    for included in includes(name):
        target = resolved(included)
        if target is None or target in INTERFACE or layer(target) is None:
            continue
        assert layer(target) <= own, f"{name} includes {target}, which lies further out"


def test_only_provider_list_names_providers():
    inner = [f for f in C_FILES if f.startswith("src/") and layer(f) in (2, 3) and f != "src/host/provider_list.c"]
    bad = [f for f in inner if re.search(r"\bmfi_provider_[a-z]+\b(?!s)", re.sub(r"\bmfi_provider_count\b", "", code(f)))]
    assert not bad


@pytest.mark.parametrize("name", C_FILES)
def test_vendor_headers_stay_where_vendors_are_called(name):
    vendor = [i for i in includes(name) if VENDOR.match(i) and resolved(i) is None]
    assert not vendor or MAY_INCLUDE_VENDOR.search(name), f"{name} includes {', '.join(vendor)}"


def test_outside_the_library_only_public_headers():
    bad = []
    for name in C_FILES:
        if name.startswith(("python/", "bench/", "examples/")):
            skeletons = "src/device/" if name.startswith("bench/device/") else "-"  # measured without the library around them
            inner = [i for i in includes(name) if (resolved(i) or "").startswith("src/")]
            bad += [f"{name}: {i}" for i in inner if not resolved(i).startswith(skeletons)]
    assert not bad


@pytest.mark.parametrize("name", C_FILES)
def test_file_length(name):
    lines = text(name).count("\n")
    public = pathlib.PurePosixPath(name).parent == pathlib.PurePosixPath("include/mathfuse")
    assert lines <= (300 if public else 600)


def functions(name):
    """(name, lines) of each function, by the layout that clang-format gives: a brace alone closes it in column 0."""
    start = title = None
    for i, line in enumerate(code(name).splitlines()):
        if line == "{":
            start = i
        elif line == "}" and start is not None:
            yield title, i - start + 1
            start = None
        elif start is None and line and not line[0].isspace() and (m := re.search(r"(\w+)\(", line)):
            title = m[1]


@pytest.mark.parametrize("name", [f for f in C_FILES if f.endswith(".c")])
def test_function_length(name):
    long = [f"{title}: {lines} lines" for title, lines in functions(name) if lines > 62]  # 60 and the braces
    assert not long


def test_file_names_are_unique():
    allowed = {"CMakeLists.txt", "README.md", "__init__.py", "conftest.py"}
    names = collections.defaultdict(list)
    for f in FILES:
        names[pathlib.PurePosixPath(f).name].append(f)
    assert not [fs for n, fs in names.items() if len(fs) > 1 and n not in allowed]


def test_nothing_is_left_for_later():
    words = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b")
    bad = []
    for f in FILES:
        if f.endswith((".c", ".h", ".cuh", ".py", ".pyi", ".def", ".cmake", ".txt")) or f in ("dev", ".ci/run"):
            bad += [f"{f}:{i}" for i, line in enumerate(text(f).splitlines(), 1) if words.search(line)]
    assert not bad


def test_no_path_of_a_machine():
    path = re.compile(r"(^|[^\w.])/(work|home|root|Users)/")
    bad = [f"{f}:{i}" for f in FILES if f != "LICENSE" and not f.endswith((".jsonl", ".png"))
           for i, line in enumerate(text(f).splitlines(), 1) if path.search(line)]  # fmt: skip
    assert not bad


@pytest.mark.parametrize("name", C_FILES)
def test_first_line_says_what_the_file_is(name):
    first = text(name).lstrip("\n").split("\n", 1)[0]
    assert first.startswith(("/*", "//")), f"{name} starts with {first!r}"


def test_versions_agree():
    project = tomllib.loads(text("pyproject.toml"))["project"]["version"]
    cmake = re.search(r"project\(mathfuse VERSION ([\d.]+)", text("CMakeLists.txt"))[1]
    header = re.search(r'MF_VERSION_STRING "([\d.]+)"', text("include/mathfuse/mathfuse.h"))[1]
    parts = [re.search(rf"MF_VERSION_{p} (\d+)", text("include/mathfuse/mathfuse.h"))[1] for p in ("MAJOR", "MINOR", "PATCH")]
    assert project == cmake == header == ".".join(parts)
    assert f"## {project}" in text("CHANGELOG.md")


def test_presets_parse():
    presets = json.loads(text("CMakePresets.json"))
    names = {p["name"] for p in presets["configurePresets"]}
    assert all(p["configurePreset"] in names for p in presets["buildPresets"] + presets["testPresets"])


HEADERS = [f for f in FILES if re.fullmatch(r"include/mathfuse/[^/]+\.h", f)]


@pytest.mark.parametrize("name", HEADERS)
@pytest.mark.parametrize(("compiler", "standard"), [("cc", "c11"), ("c++", "c++17")])
def test_public_header_stands_alone(name, compiler, standard):
    language = "c" if compiler == "cc" else "c++"
    subprocess.run(
        [compiler, f"-std={standard}", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-I", "include",
         "-include", name.removeprefix("include/"), "-x", language, "-"],
        cwd=ROOT, input="int main(void) { return 0; }\n", text=True, check=True,
    )  # fmt: skip


def test_every_op_has_golden_values():
    ops = re.findall(r"^MF_OP\(\w+, (\w+),", text("include/mathfuse/def/op.def"), re.MULTILINE)
    golden = "\n".join(text(f) for f in FILES if f.startswith("tests/golden/"))
    assert golden, "tests/golden is empty"
    assert not [op for op in ops if not re.search(rf"\b{op}\b", golden)]
