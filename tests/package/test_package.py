"""What scripts/package makes, installed and run where there is nothing else: a new virtual environment, trees of Debian 12
and Ubuntu 24.04. MOETUNE_DIST names a folder of packages made before; MOETUNE_TREES one of trees, by suite."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
TUNE = "tune --device cpu --experts 4 --top-k 2 --n 64 --k 64 --tokens 8 --max-candidates 2 -q -o table.json"
KEYRINGS = {"bookworm": "debian-archive-keyring.gpg", "noble": "ubuntu-archive-keyring.gpg"}


def run(*command, **options):
    result = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            universal_newlines=True, **options)
    assert result.returncode == 0, result.stdout
    return result.stdout


@pytest.fixture(scope="module")
def dist():
    if "MOETUNE_DIST" in os.environ:
        return pathlib.Path(os.environ["MOETUNE_DIST"])
    run(SOURCE / "scripts/package")
    return SOURCE / "build/dist"


def tune_alone(program, folder):
    """Tunes with no variable set but HOME."""
    run(program, *TUNE.split(), cwd=folder, env={"HOME": str(folder)})
    assert "valid" in run(program, "validate", "table.json", cwd=folder, env={"HOME": str(folder)})


@pytest.fixture
def environment(dist, tmp_path):
    wheel, = dist.glob("*.whl")
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    run(tmp_path / "venv/bin/pip", "install", "--no-index", wheel)
    return tmp_path / "venv"


def test_the_wheel_runs_in_a_new_environment(environment, dist, tmp_path):
    assert next(dist.glob("*.whl")).stat().st_size < 15e6
    tune_alone(environment / "bin/moetune", tmp_path)
    run(environment / "bin/python", "-c", "import moetune_kernels; moetune_kernels.Library; import moetune; moetune.tune")
    for name in ("lib/libmoetune.so", "include/moetune.h", "lib/cmake/moetune/moetuneConfig.cmake",
                 "share/man/man1/moetune.1"):
        assert (environment / name).is_file(), name
    assert len(list(environment.glob("lib/python*/site-packages/moetune_torch.py"))) == 1


def test_nvrtc_of_pip_comes_first(environment, tmp_path):
    if subprocess.run([str(environment / "bin/pip"), "install", "-q", "nvidia-cuda-nvrtc-cu12==12.9.86"]).returncode:
        pytest.skip("pip reaches no packages")
    home = {"HOME": str(tmp_path)}
    assert re.search(r"nvrtc +\| 12\.9 ", run(environment / "bin/moetune", "doctor", "--quick", "--device", "h200", env=home))
    run(environment / "bin/moetune", "compile", "--arch", "sm_90a", "--model", "qwen3-30b-a3b", "-o", tmp_path / "cubins",
        env=home)
    assert list((tmp_path / "cubins").rglob("*.cubin"))


def test_the_archive_runs_from_any_folder(dist, tmp_path):
    archive, = dist.glob("*.tar.gz")
    run("tar", "-xf", archive, "-C", tmp_path)
    tune_alone(next(tmp_path.glob("*/bin/moetune")), tmp_path)


@pytest.mark.parametrize("suite", sorted(KEYRINGS))
def test_the_deb_installs_in_a_bare_tree(dist, suite, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can install into another tree")
    tree = tmp_path / suite
    if "MOETUNE_TREES" in os.environ:
        run("cp", "-a", pathlib.Path(os.environ["MOETUNE_TREES"]) / suite, tree)
    else:
        if not shutil.which("debootstrap"):
            pytest.skip("debootstrap is not installed")
        if not pathlib.Path("/usr/share/keyrings", KEYRINGS[suite]).exists():
            pytest.skip(f"the keys of {suite}'s archive are not installed")
        if subprocess.run(["debootstrap", "--variant=minbase", suite, str(tree)]).returncode:
            pytest.skip(f"debootstrap cannot make a tree of {suite}")
    shutil.copy(next(dist.glob("*.deb")), tree / "moetune.deb")
    inside = ["unshare", "--mount", "--pid", "--fork", f"--mount-proc={tree}/proc", "chroot", tree]
    run(*inside, "dpkg", "--install", "/moetune.deb")
    run(*inside, "env", "-i", "HOME=/root", "PATH=/usr/bin:/bin", "sh", "-c",
        f"cd /root && moetune --help && moetune {TUNE} && moetune validate table.json")
    assert "Depends: libc6" in run("dpkg", "--field", tree / "moetune.deb")
