"""Fresh virtual environments for packages of plug-ins, without a network: Stateward and all else come from ours."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

PATIENT = 240.0
RUN = "#!{python}\nfrom stateward.cli.main import run\n\nrun()\n"


class FreshEnvironment:
    """A virtual environment in which packages are installed by pip."""

    def __init__(self, folder: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=PATIENT)
        self.python, self.stateward = folder / "bin" / "python", folder / "bin" / "stateward"
        packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
        ours = sysconfig.get_path("purelib")
        (packages / "ours.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
        self.stateward.write_text(RUN.format(python=self.python))
        self.stateward.chmod(0o755)

    def install(self, package: Path) -> None:
        """Build and install a package."""
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "--python", str(self.python)]
        how = ["install", "--no-index", "--no-deps", "--no-build-isolation", "--no-compile"]
        self.run([*pip, *how, str(package)])

    def run(
        self, command: list[str], *, folder: Path | None = None, environ: dict[str, str] | None = None, code: int = 0
    ) -> str:
        """Run a command to its end, and return what it printed."""
        env = {**clean_environ(), **(environ or {})}
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENT, check=False, cwd=folder, env=env
        )
        assert done.returncode == code, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr


def clean_environ() -> dict[str, str]:
    """Return the environment without this checkout, its settings and those of pytest.

    readline sets COLUMNS for what pytest starts.
    """
    ours = ("STATEWARD_", "PYTHON", "PYTEST_", "COLUMNS")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}
