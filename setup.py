"""The list of packages: setuptools finds them, and each gets the prefix `decodescope`. Everything else is in pyproject.toml.

The folders lie at the top of the repository, and `packages.find` in pyproject.toml cannot add a prefix.
"""

from setuptools import find_packages, setup

ROOMS = ("engine", "lab", "app", "testing")

found = find_packages(include=[pattern for room in ROOMS for pattern in (room, f"{room}.*")])
setup(
    packages=["decodescope", *(f"decodescope.{name}" for name in found)],
    script_name="setup.py",  # the package's own folder is this one: setuptools leaves out the file of this name
)
