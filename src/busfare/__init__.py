"""busfare: what data pays to ride the bus between CPU and GPU, what it would pay elsewhere, and what to change."""

__version__ = "0.1.0"
__all__ = ["__version__"]
