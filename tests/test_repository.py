"""What holds for the repository as a whole: its files, its commands, its imports."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import json
import os
import pkgutil
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

import dtoolkit

ROOT = Path(__file__).resolve().parent.parent
TRACKED = subprocess.run(
    ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
).stdout.split("\0")[:-1]
README = (ROOT / "README.md").read_text()
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONSTRAINTS = (ROOT / "binder" / "constraints.txt").read_text().splitlines()

# A package may import, when it is itself imported, only what stands on a lower line.
LAYERS = [
    ["errors", "philox", "csr_kernel"],
    ["data", "comm", "sparsity"],
    ["cluster"],
    ["arrays", "faults"],
    ["spmm", "training"],
    ["graph"],
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
MODULES = sorted((ROOT / "dtoolkit").rglob("*.py"))


# ------------------------------------------------------------------------------------- files


def test_top_level_holds_nothing_else():
    allowed = {
        *("pyproject.toml", "README.md", "LICENSE", ".gitignore", ".ci"),
        *("notebooks", "dtoolkit", "tests", "binder"),
    }
    assert {path.split("/")[0] for path in TRACKED} <= allowed


def test_no_file_names_a_folder_of_one_machine():
    own = re.compile(r"(?<![\w.~-])/(?:home|Users|root|opt|mnt|srv|work|private)/\w")
    found = []
    for path in TRACKED:
        if not (ROOT / path).is_file():
            continue
        text = (ROOT / path).read_bytes().decode("utf-8", "replace")
        if own.search(text) or str(ROOT) in text:
            found.append(path)
    assert not found


def test_scripts_of_ci_and_binder_can_be_run():
    for name in (".ci/run", "binder/postBuild", "binder/start"):
        path = ROOT / name
        assert os.access(path, os.X_OK), name
        assert path.read_text().startswith("#!"), name
        subprocess.run(["bash", "-n", str(path)], check=True)


def test_pictures_lie_in_one_folder():
    pictures = [path for path in TRACKED if path.endswith((".png", ".svg", ".jpg", ".gif"))]
    assert pictures
    assert all(path.startswith("notebooks/images/") for path in pictures)


# ------------------------------------------------------------------------------- installation


def test_versions_agree():
    assert PYPROJECT["project"]["version"] == dtoolkit.__version__
    assert importlib.metadata.version("dtoolkit") == dtoolkit.__version__


def test_dependencies_are_lower_bounds():
    project = PYPROJECT["project"]
    for requirement in chain(project["dependencies"], *project["optional-dependencies"].values()):
        assert re.fullmatch(r"dtoolkit\[\w+(,\w+)*\]|[\w-]+>=[\d.]+", requirement), requirement


def test_constraints_pin_all_that_is_asked_for():
    pins = [line for line in CONSTRAINTS if not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.+]+", line) for line in pins)
    pinned = {_normal(line.split("==")[0]) for line in pins}
    project = PYPROJECT["project"]
    extras = project["optional-dependencies"]
    asked = [*project["dependencies"], *chain(*(extras[name] for name in extras if name != "cuda"))]
    asked += [
        line
        for line in (ROOT / "binder" / "requirements.txt").read_text().splitlines()
        if re.match(r"[\w-]+", line) and not line.startswith("-")
    ]
    names = {_normal(re.match(r"[\w-]+", line)[0]) for line in asked} - {"dtoolkit"}
    assert names <= pinned
    assert {"ruff", "mypy", "jupyter-server-proxy"} <= pinned


def test_binder_installs_this_package_at_the_pinned_torch():
    lines = (ROOT / "binder" / "requirements.txt").read_text().splitlines()
    (torch,) = [line for line in CONSTRAINTS if line.startswith("torch==")]
    assert f"{torch}+cpu" in lines
    assert "-c constraints.txt" in lines
    assert "-e .[lab,partition]" in lines
    assert (ROOT / "binder" / "runtime.txt").read_text() == "python-3.11\n"
    assert not (ROOT / "binder" / "environment.yml").exists()  # it would silence the others


# ------------------------------------------------------------------------------------- README


def test_readme_has_two_commands_that_take_the_constraints():
    for heading, extra, ends in (
        ("Install and open JupyterLab", "lab", "jupyter lab notebooks/00-start-here.ipynb"),
        ("Install and run all tests", "test", "pytest"),
    ):
        command = _block(heading)
        assert "python3 -m venv .venv" in command
        assert "-c binder/constraints.txt" in command
        assert f'".[{extra}]"' in command
        assert command.endswith(ends)


def test_readmes_ten_lines_do_what_they_say(tmp_path):
    code = _block("In ten lines")
    assert len(code.splitlines()) <= 12
    script = tmp_path / "ten_lines.py"
    lines = "".join(f"    {line}\n" for line in code.splitlines())
    script.write_text(f'if __name__ == "__main__":\n{lines}')
    subprocess.run([sys.executable, script], check=True, timeout=120, cwd=tmp_path)


def test_readme_points_at_what_is_there():
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", README):
        if not target.startswith(("http://", "https://")):
            assert (ROOT / target).exists(), target
    for module in re.findall(r"python -m (tests[\w.]+)", README):
        assert (ROOT / (module.replace(".", "/") + ".py")).is_file(), module


# ---------------------------------------------------------------------------------- notebooks


@pytest.mark.parametrize("path", [path for path in TRACKED if path.endswith(".ipynb")])
def test_notebooks_are_stripped(path):
    file = ROOT / path
    assert file.stat().st_size < 200_000
    notebook = json.loads(file.read_text())
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    assert "widgets" not in notebook["metadata"]
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        tags = set(cell["metadata"].get("tags", []))
        assert len("".join(cell["source"]).splitlines()) <= 12, cell["id"]
        if "keep_output" in tags:
            assert cell["outputs"], cell["id"]
            assert cell["execution_count"] is not None, cell["id"]
        else:
            assert cell["outputs"] == [], cell["id"]
            assert cell["execution_count"] is None, cell["id"]
        if "nbval-check-output" in tags:
            assert "keep_output" in tags, cell["id"]


# ------------------------------------------------------------------------------------ imports


def test_public_names_are_there():
    for info in pkgutil.walk_packages(dtoolkit.__path__, "dtoolkit."):
        module = importlib.import_module(info.name)
        for name in getattr(module, "__all__", ()):
            assert hasattr(module, name), f"{info.name}.{name}"
    assert set(dtoolkit.__all__) >= {"Cluster", "distribute", "errors", "plan", "read_matrix"}


def test_import_leaves_figures_and_the_notebook_alone():
    code = (
        "import dtoolkit, sys\n"
        "unwanted = {'plotly', 'ipywidgets', 'anywidget', 'dtoolkit.figures', 'dtoolkit.widgets'}\n"
        "sys.exit(', '.join(unwanted & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "path", MODULES, ids=lambda path: path.relative_to(ROOT / "dtoolkit").as_posix()
)
def test_imports_go_one_way(path):
    inside = path.relative_to(ROOT / "dtoolkit")
    own = inside.parts[0].removesuffix(".py")
    if own in ("__init__", "figures", "widgets"):  # names what is public, reads all, stands on all
        return
    for package, at_import in _imports(ast.parse(path.read_text()), inside):
        if package == own:
            continue
        if package == "figures":
            assert not at_import, f"{own} imports {package} at import time"
            continue
        assert LEVEL[package] < LEVEL[own], f"{own} imports {package}"


def _imports(node: ast.AST, inside: Path, at_import: bool = True) -> Iterator[tuple[str, bool]]:
    """Yield packages of dtoolkit that a module imports, and whether it does when imported."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        if isinstance(child, ast.Import):
            names = [alias.name for alias in child.names]
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, f"{inside}: relative import"
            module = child.module or ""
            names = (
                [f"dtoolkit.{alias.name}" for alias in child.names]
                if module == "dtoolkit"
                else [module]
            )
        else:
            lazy = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from _imports(child, inside, at_import and not lazy)
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] == "dtoolkit" and len(parts) > 1 and parts[1] != "__version__":
                yield parts[1], at_import


def _block(heading: str) -> str:
    """Code of the first block under a heading of the README."""
    _, _, rest = README.partition(f"### {heading}\n")
    assert rest, f"README has no heading {heading!r}"
    return re.search(r"```\w*\n(.*?)\n```", rest, re.DOTALL)[1]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
