"""No name stands for a module and for something else: `import busfare.a.b` and `from busfare.a import b` give the same."""

import sys
from importlib import import_module
from pkgutil import walk_packages

import busfare


def test_no_function_shadows_a_module() -> None:
    shadowed = []
    for module in walk_packages(busfare.__path__, "busfare."):
        package, _, name = module.name.rpartition(".")
        if name.startswith(
            ("lib", "__main__")
        ):  # libraries for other programs; what runs when it is imported
            continue
        import_module(module.name)
        if getattr(import_module(package), name) is not sys.modules[module.name]:
            shadowed.append(module.name)
    assert shadowed == []
