"""NAS FT and MG of `hybrid/`, run in the modes that the machine has, beside the limit that the model gives."""
