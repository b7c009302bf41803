"""Build empty stand-ins for the CUDA libraries that torch links against but a CPU never calls.

Why: the published torch wheel is the CUDA build. Its shared objects name a dozen nvidia libraries
as load-time dependencies, about 4 GB of wheels, and `import torch` fails when one is absent.
Nothing in them runs on a machine without a GPU, so a library that merely *exists*, with the right
soname and symbols, is enough. Each stub function returns an error code, so that an accidental call
is reported by torch as a failure and never looks like success.

The stubs land in `torch/lib`, which torch searches last: a real nvidia wheel always wins. What is
missing is read from the installed torch itself, so another torch version needs no new list here.

Usage: python generate_stubs.py [--force]   (with the environment's own interpreter)
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

# torch opens these itself, on first use of a GPU feature; `import torch` does without them.
OPENED_LAZILY = {"libcaffe2_nvrtc.so", "libtorch_cuda_linalg.so"}

# Undefined symbols do not say which library should define them, nvidia's naming does.
# The longest matching prefix decides, so `cublasLt…` is not taken for `cublas…`.
LIBRARY_BY_PREFIX = {
    "cublas": "libcublas.so",
    "cublasLt": "libcublasLt.so",
    "cuda": "libcudart.so",
    "__cuda": "libcudart.so",
    "cudnn": "libcudnn.so",
    "cufft": "libcufft.so",
    "cuFile": "libcufile.so",
    "cupti": "libcupti.so",
    "curand": "libcurand.so",
    "cusparse": "libcusparse.so",
    "cusparseLt": "libcusparseLt.so",
    "nccl": "libnccl.so",
    "pnccl": "libnccl.so",
    "nvrtc": "libnvrtc.so",
    "nvshmem": "libnvshmem_host.so",
}
PREFIXES = sorted(LIBRARY_BY_PREFIX, key=len, reverse=True)

MARKER = "rlox_stubs.stamp"


class StubError(Exception):
    """The stubs could not be built; the message says what to do about it."""


@dataclass
class Stub:
    """One library to stand in for: the symbols torch wants from it and their version names."""

    soname: str
    symbols: set[str] = field(default_factory=set)
    versions: set[str] = field(default_factory=set)


def run(*command: str) -> str:
    """Standard output of a tool, or a StubError with what the tool said."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise StubError(f"`{' '.join(command[:3])} …` failed: {done.stderr.strip()[:500]}")
    return done.stdout


def torch_directory() -> Path:
    """Where torch is installed, found without importing it (the import is what fails)."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise StubError(f"torch is not installed for {sys.executable}; run `uv sync` first")
    return Path(spec.origin).parent


def needed(library: Path) -> tuple[set[str], list[Path]]:
    """The sonames a library needs and the directories its own search path names."""
    sonames: set[str] = set()
    directories: list[Path] = []
    for line in run("readelf", "-dW", str(library)).splitlines():
        value = line[line.find("[") + 1 : line.rfind("]")]
        if "(NEEDED)" in line:
            sonames.add(value)
        elif "(RPATH)" in line or "(RUNPATH)" in line:
            origin = str(library.parent)
            directories += [Path(part.replace("$ORIGIN", origin)) for part in value.split(":")]
    return sonames, directories


def undefined_symbols(library: Path) -> list[tuple[str, str]]:
    """(name, version) of what a library expects others to define; version may be empty."""
    found = []
    for line in run("nm", "-D", "--undefined-only", str(library)).splitlines():
        name, _, version = line.split()[-1].partition("@")
        found.append((name, version.lstrip("@")))
    return found


def plan(lib_directory: Path) -> list[Stub]:
    """The stubs this torch needs here: every nvidia soname that no directory on its path has."""
    libraries = [
        path
        for path in sorted(lib_directory.glob("lib*.so"))
        if path.is_file() and path.name not in OPENED_LAZILY
    ]
    stubs: dict[str, Stub] = {}
    known = set(LIBRARY_BY_PREFIX.values())
    for library in libraries:
        sonames, directories = needed(library)
        for soname in sonames:
            stem = soname.partition(".so")[0] + ".so"
            # Our own earlier output does not count as present: `--force` must rebuild it.
            elsewhere = [d for d in directories if d.resolve() != lib_directory.resolve()]
            if stem in known and not any((d / soname).exists() for d in elsewhere):
                stubs.setdefault(stem, Stub(soname))
    for library in libraries:
        for name, version in undefined_symbols(library):
            prefix = next((p for p in PREFIXES if name.startswith(p)), None)
            stub = stubs.get(LIBRARY_BY_PREFIX[prefix]) if prefix else None
            if stub is not None:
                stub.symbols.add(name)
                if version:
                    stub.versions.add(version)
    return sorted(stubs.values(), key=lambda stub: stub.soname)


def build(stub: Stub, directory: Path) -> Path:
    """Compile one stub in `directory`."""
    source = directory / f"{stub.soname}.c"
    bodies = [f"int {name}(void) {{ return 1; }}" for name in sorted(stub.symbols)]
    source.write_text("\n".join(bodies or ["int rlox_empty_stub;"]) + "\n")
    output = directory / stub.soname
    command = ["gcc", "-shared", "-fPIC", "-nostdlib", "-s", "-w", f"-Wl,-soname,{stub.soname}"]
    if stub.versions:
        # A reference that names a version is refused by the loader unless the library defines it.
        script = directory / f"{stub.soname}.map"
        first, *others = sorted(stub.versions)
        nodes = [f"{first} {{ global: *; }};", *(f"{name} {{ }};" for name in others)]
        script.write_text("\n".join(nodes) + "\n")
        command.append(f"-Wl,--version-script={script}")
    run(*command, "-o", str(output), str(source))
    return output


def generate(force: bool) -> str:
    """Bring the stubs up to date and say in one line what happened."""
    torch = torch_directory()
    lib_directory = torch / "lib"
    identity = hashlib.sha256(Path(__file__).read_bytes())
    identity.update((torch / "version.py").read_bytes())
    marker = lib_directory / MARKER
    if not force and marker.exists():
        digest, *sonames = marker.read_text().split()
        if digest == identity.hexdigest() and all((lib_directory / s).exists() for s in sonames):
            return f"{len(sonames)} stubs are up to date in {lib_directory}"
    for tool, package in (("gcc", "gcc"), ("readelf", "binutils"), ("nm", "binutils")):
        if shutil.which(tool) is None:
            raise StubError(f"`{tool}` is not on PATH; install the package {package}")
    stubs = plan(lib_directory)
    with tempfile.TemporaryDirectory(dir=lib_directory, prefix="rlox-stubs-") as temporary:
        for stub in stubs:
            os.replace(build(stub, Path(temporary)), lib_directory / stub.soname)
        stamp = Path(temporary) / MARKER
        stamp.write_text("\n".join([identity.hexdigest(), *(s.soname for s in stubs)]) + "\n")
        os.replace(stamp, marker)
    symbols = sum(len(stub.symbols) for stub in stubs)
    return f"{len(stubs)} stubs with {symbols} symbols written to {lib_directory}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Build the link stubs that let the CUDA build of torch import without a GPU.",
        epilog="Run it with the interpreter of the environment whose torch needs them. "
        "It does nothing when they are up to date.",
    )
    parser.add_argument("--force", action="store_true", help="rebuild even if up to date")
    try:
        print(generate(parser.parse_args().force))
    except StubError as error:
        print(f"generate_stubs: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
