"""The documents: tables that are generated are current, links lead somewhere, figures come from files."""

import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(str(p.relative_to(ROOT)) for p in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("tests/**/*.md")])


def test_tables_are_current():
    subprocess.run([sys.executable, "docs/generate.py", "--check"], cwd=ROOT, check=True)


def test_figures_are_current():
    subprocess.run([sys.executable, "bench/report.py", "--check"], cwd=ROOT, check=True)


def links(text):
    """Targets of Markdown links; code, fenced, indented or inline, has none."""
    text = re.sub(r"^(```|~~~).*?^\1", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^ {4,}.*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", text, flags=re.DOTALL)
    return re.findall(r"\]\(([^)#\s]+)[^)]*\)", text)


def test_code_has_no_links():
    assert links("[a](b.md)\n```python\nk[8](x, y)\n```\n    k[1](z)\n`k[2](w)` and ``k`[3](v)`` [c](d.md)") == ["b.md", "d.md"]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document):
    path = ROOT / document
    targets = links(path.read_text())
    assert not [t for t in targets if "://" not in t and not (path.parent / t).exists()]


def test_every_command_of_dev_is_in_contributing():
    commands = re.findall(r"^cmd_(\w+)\(\)", (ROOT / "dev").read_text(), re.MULTILINE)
    text = (ROOT / "CONTRIBUTING.md").read_text()
    assert not [c for c in commands if f"./dev {c}" not in text]
