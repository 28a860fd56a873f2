#!/usr/bin/env bash
# Records the example traces on this machine's GPU into FOLDER (python3 with torch, torchvision, transformers, cupy).
set -euo pipefail
folder=$(mkdir -p "$1" && cd "$1" && pwd)
cd "$(dirname "$0")/programs"
gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -1 | tr 'A-Z ' 'a-z-' | sed -E 's/^nvidia-//; s/-.*//')
python3 train_images.py --out "$folder/train-images-$gpu.json.gz"
python3 train_images.py --pin --out "$folder/train-images-pinned-$gpu.json.gz"
python3 generate_text.py --out "$folder/generate-text-$gpu.json.gz"
python3 smooth_out_of_core.py --out "$folder/smooth-out-of-core-$gpu.json.gz"
python3 smooth_out_of_core.py --pinned --streams 3 --out "$folder/smooth-out-of-core-streams-$gpu.json.gz"
nvidia-smi --query-gpu=name,driver_version,pcie.link.gen.max,pcie.link.width.max,pcie.link.gen.current --format=csv > "$folder/recorded-on-$gpu.csv"
date -u +%F >> "$folder/recorded-on-$gpu.csv"
