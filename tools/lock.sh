#!/usr/bin/env bash
# Write requirements-hashes.txt, the tested versions with the hashes of all their files, and sbom.cdx.json, a CycloneDX
# bill of materials of them, to a folder. constraints.txt has no hashes: with hashes, pip would refuse the editable
# installation of the Makefile, and every file that is not on the index, such as a local wheel of torch.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:?usage: tools/lock.sh FOLDER}
python3 -m pip install --quiet --disable-pip-version-check pip-tools cyclonedx-bom
mkdir -p "$out"
python3 -m piptools compile --quiet --generate-hashes --strip-extras --no-emit-index-url --no-emit-find-links \
    --extra train --constraint constraints.txt --output-file "$out/requirements-hashes.txt" pyproject.toml
python3 -m cyclonedx_py requirements --pyproject pyproject.toml --output-reproducible \
    --of JSON -o "$out/sbom.cdx.json" "$out/requirements-hashes.txt"
