"""No name stands for a module and for something else: `import busfare.a.b` and `from busfare.a import b` give the same."""

from importlib import import_module
from operator import attrgetter
from pkgutil import walk_packages

import busfare


def test_no_function_shadows_a_module() -> None:
    names = [module.name for module in walk_packages(busfare.__path__, "busfare.")]
    # Not libraries for other programs, nor what runs when it is imported.
    names = [name for name in names if not name.rpartition(".")[2].startswith(("lib", "__main__"))]
    modules = {name: import_module(name) for name in names}
    assert [n for n in names if attrgetter(n.removeprefix("busfare."))(busfare) is not modules[n]] == []
