"""The TypeScript compiler for the tests: what it says about programs, and what a file of types declares."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from .javascript import MODULE, ROOT, node, run_node

TYPES = MODULE.with_suffix(".d.ts")
COMPILER = ROOT / ".venv" / "node_modules" / "typescript" / "lib" / "typescript.js"
"""The package `typescript`, which `python3 -m tests` fetches."""

needs_typescript = pytest.mark.skipif(
    node() is None or not COMPILER.exists(), reason="there is no Node or no TypeScript"
)

_OPEN = """
    const { default: ts } = await import(argument.compiler);
    const program = ts.createProgram(argument.files, {
        strict: true,
        noEmit: true,
        types: [],
        target: ts.ScriptTarget.ES2022,
        module: ts.ModuleKind.NodeNext,
        moduleResolution: ts.ModuleResolutionKind.NodeNext,
        lib: argument.lib.map((name) => `lib.${name}.d.ts`),
        paths: argument.paths,
    });
"""

_DIAGNOSE = """
    answer(ts.getPreEmitDiagnostics(program).map(({ file, start, messageText }) => [
        file?.fileName ?? null,
        file ? file.getLineAndCharacterOfPosition(start).line + 1 : 0,
        ts.flattenDiagnosticMessageText(messageText, " "),
    ]));
"""

_DECLARATIONS = """
    const checker = program.getTypeChecker();
    const source = program.getSourceFile(argument.files[0]);
    const here = (symbol) => checker.getTypeOfSymbolAtLocation(symbol, source);
    const publicNames = (type) => checker.getPropertiesOfType(type).map(({ name }) => name);
    const declared = (symbol) => checker.getDeclaredTypeOfSymbol(symbol);
    const symbols = checker.getExportsOfModule(checker.getSymbolAtLocation(source));
    const byName = new Map(symbols.map((symbol) => [symbol.name, symbol]));
    const optionsOf = (symbol) => {
        for (const signature of here(symbol).getCallSignatures().slice(-1)) {
            for (const parameter of signature.getParameters()) {
                if (!["options", "filter"].includes(parameter.name)) continue;
                const properties = checker.getPropertiesOfType(checker.getNonNullableType(here(parameter)));
                return properties.map((property) => [
                    property.name,
                    property.getJsDocTags(checker).some(({ name }) => name === "deprecated"),
                ]);
            }
        }
        return null;
    };
    const entries = (list, key, value) => Object.fromEntries(list.map((one) => [key(one), value(one)]));
    const named = ({ name }) => name;
    const methods = (type, prefix) => {
        const members = checker.getPropertiesOfType(declared(byName.get(type)));
        return entries(members, ({ name }) => prefix + name, optionsOf);
    };
    const flagged = (flag) => symbols.filter(({ flags }) => flags & flag);
    answer({
        values: flagged(ts.SymbolFlags.Value).map(named),
        classes: entries(flagged(ts.SymbolFlags.Class), named, (symbol) => publicNames(declared(symbol))),
        options: {
            connect: optionsOf(byName.get("connect")),
            ...methods("Client", ""),
            ...methods("Flows", "flows."),
            ...methods("Workers", "workers."),
        },
        events: Object.fromEntries(declared(byName.get("GreenroomEvent")).types.map((event) => {
            const properties = checker.getPropertiesOfType(event);
            const type = here(properties.find(({ name }) => name === "type")).value;
            const optional = ({ flags }) => Boolean(flags & ts.SymbolFlags.Optional);
            return [type, properties.map((property) => [property.name, optional(property)])];
        })),
    });
"""


class Diagnostic(NamedTuple):
    """An error of the compiler."""

    file: str | None
    line: int
    message: str


async def diagnose(
    *files: Path, lib: tuple[str, ...] = ("es2022",), installed: bool = False
) -> list[Diagnostic]:
    """The errors in these files, in strict mode.

    `greenroom` is the package that is installed next to them, or the one in this repository.
    """
    paths = {} if installed else {"greenroom": [str(TYPES)]}
    argument = {"files": [str(file) for file in files], "lib": lib, "paths": paths}
    found = await run_node(_OPEN + _DIAGNOSE, {"compiler": COMPILER.as_uri(), **argument})
    return [Diagnostic(*one) for one in found]


async def declarations() -> dict[str, Any]:
    """What `greenroom.d.ts` declares: exports, members of classes, options and fields of events."""
    argument = {"files": [str(TYPES)], "lib": ["es2022"], "paths": {}}
    found: dict[str, Any] = await run_node(_OPEN + _DECLARATIONS, {"compiler": COMPILER.as_uri(), **argument})
    return found


async def transpiled(text: str) -> str:
    """A program in TypeScript as JavaScript."""
    program = """
        const { default: ts } = await import(argument.compiler);
        const compilerOptions = { module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ES2022 };
        answer(ts.transpileModule(argument.text, { compilerOptions }).outputText);
    """
    found: str = await run_node(program, {"compiler": COMPILER.as_uri(), "text": text})
    return found
