"""Constants and words that Python states again are those of the program: kernels/formulas.h, the table of formats."""
import ast
import dataclasses
import importlib.util
import json
import re
import sys
import typing

import pytest

from conftest import SOURCE

COMMON = json.loads((SOURCE / "configs/schema/common.json").read_text())["$defs"]
FORMATS = COMMON["format"]["enum"]  # workload_tests compares them with the table of formats
ELEMENTS = COMMON["operands"]["items"]["properties"]["dtype"]["enum"]


def constants(file):
    """Names of a module and their values, without importing it: those that are literals."""
    found = {}
    for line in ast.parse((SOURCE / file).read_text()).body:
        if not isinstance(line, ast.Assign):
            continue
        try:
            value = ast.literal_eval(line.value)
        except ValueError:
            continue
        target = line.targets[0]
        names = [name.id for name in target.elts] if isinstance(target, ast.Tuple) else [target.id]
        found.update(zip(names, value if isinstance(target, ast.Tuple) else [value]))
    return found


def module(file):
    spec = importlib.util.spec_from_file_location(f"tables_of_{file.replace('/', '_')}", SOURCE / file)
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made
    spec.loader.exec_module(made)
    return made


def functions(file, *names):
    """Definitions of a module that cannot be imported here."""
    made = {"typing": typing, "dataclasses": dataclasses}
    body = [node for node in ast.parse((SOURCE / file).read_text()).body if getattr(node, "name", None) in names]
    exec(compile(ast.Module(body, []), file, "exec"), made)
    return made


@pytest.mark.parametrize("file,prefix,names", [
    ("src/runtime/moetune_torch.py", "_", ["GPT_OSS_SLOPE", "GPT_OSS_LIMIT"]),
    ("scripts/peer_libraries.py", "", ["GPT_OSS_SLOPE", "GPT_OSS_LIMIT", "MAX_FP8", "MIN_LARGEST"]),
])
def test_constants_are_those_of_kernels(file, prefix, names):
    header = (SOURCE / "kernels/formulas.h").read_text()
    stated = constants(file)
    for name in names:
        camel = "k" + "".join(word.capitalize() for word in name.split("_"))
        assert float(re.search(rf"\b{camel} = ([-0-9.e]+)f?[,;]", header)[1]) == stated[prefix + name], name


def test_words_of_formats():
    packer = module("scripts/pack_triton.py")
    format_of = functions("scripts/served_moe.py", "Format", "format_of")["format_of"]
    assert set(packer.DTYPES) <= set(FORMATS)
    assert {word for word in FORMATS if re.match("u?int(?!.*reordered)", word)} == {word for word in packer.DTYPES if "int" in word}
    for word in packer.DTYPES:
        format = format_of(word)
        assert {format.x, format.w, format.y} <= set(ELEMENTS), word
        assert format.group == int(re.search(r"-group(\d+)|$", word)[1] or 0), word


def test_elements():
    maker, kernels = module("scripts/moetune.py"), constants("src/runtime/moetune_kernels.py")
    assert set(maker.BYTES) == set(maker.TORCH) <= set(ELEMENTS)
    for element, name in maker.TORCH.items():
        assert kernels["_TORCH_DTYPES"][element] == f"torch.{name}"
    assert set(ELEMENTS) - set(kernels["_TORCH_DTYPES"]) == {"int4", "uint4", "e2m1", "e8m0"}  # which lie in bytes
    library = (SOURCE / "src/runtime/library.cpp").read_text()
    bits = {"e2m1": "4", "e8m0": "8"}
    assert dict(re.findall(r'\{"([a-z]+\d\w*)", +(\d+)\}', library)) == {
        element: bits.get(element) or re.search(r"\d+$", element)[0] for element in ELEMENTS}
    assert set(maker.FUSIONS) <= set(COMMON["cell"]["properties"])
