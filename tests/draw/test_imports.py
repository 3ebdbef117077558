"""Only what draws waits for seaborn."""

import ast
import subprocess
import sys

from small_things import ROOT

LIBRARY = ROOT / "workflow/anchorscope"


def imported(text: str) -> set[str]:
    """Return the modules that code imports, wherever it does."""
    modules = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
    return modules


def test_only_the_drawing_package_imports_seaborn():
    users = {
        path.relative_to(LIBRARY).parts[0]
        for path in LIBRARY.rglob("*.py")
        if any(module.split(".")[0] == "seaborn" for module in imported(path.read_text(encoding="utf-8")))
    }
    assert users == {"draw"}


def test_jobs_the_api_the_report_and_config_checks_start_without_seaborn():
    scripts = [path for path in (ROOT / "scripts").glob("*.py") if path.name != "draw.py"]
    assert len(scripts) > 20
    modules = {module for script in scripts for module in imported(script.read_text(encoding="utf-8"))}
    modules = sorted(module for module in modules if (LIBRARY.parent / f"{module.replace('.', '/')}.py").is_file())
    assert "anchorscope.report.job" in modules
    code = f"""
import importlib, sys
sys.modules["seaborn"] = None
for module in {modules}:
    importlib.import_module(module)
import anchorscope
from anchorscope import api, config_checks
from anchorscope.draw.style import read_style
anchorscope.open({str(ROOT / "docs/gallery")!r}).summary()
read_style("ggplot")
list(config_checks._style_mistakes({{"style": {str(ROOT / "workflow/resources/figures.mplstyle")!r}}}))
print("fine")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "fine", done.stderr


def test_drawing_does_import_seaborn():
    code = "import sys; sys.modules['seaborn'] = None; import anchorscope.draw.functions"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 1
