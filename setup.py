"""The list of packages, which pyproject.toml cannot derive: this folder is the package ``mem_agent``."""

from setuptools import find_packages, setup

setup(packages=["mem_agent", *(f"mem_agent.{name}" for name in find_packages(exclude=["tests", "tests.*"]))])
