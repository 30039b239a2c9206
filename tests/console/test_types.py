"""The types in the JSDoc of the console's modules, as TypeScript checks them."""

from __future__ import annotations

from ..clients.javascript import MODULE, ROOT, run_node
from ..clients.typescript import COMPILER, needs_typescript

APP = MODULE.parent / "app"

_CHECK = """
    const { default: ts } = await import(argument.compiler);
    const program = ts.createProgram(argument.files, {
        allowJs: true,
        checkJs: true,
        strict: true,
        noEmit: true,
        types: [],
        target: ts.ScriptTarget.ESNext,
        module: ts.ModuleKind.ESNext,
        moduleResolution: ts.ModuleResolutionKind.Bundler,
        lib: ["lib.esnext.d.ts", "lib.dom.d.ts", "lib.dom.iterable.d.ts"],
    });
    answer(ts.getPreEmitDiagnostics(program).map(({ file, start, messageText }) => {
        const line = file ? file.getLineAndCharacterOfPosition(start).line + 1 : 0;
        return `${file?.fileName}:${line}: ${ts.flattenDiagnosticMessageText(messageText, " ")}`;
    }));
"""


@needs_typescript
async def test_the_modules_have_no_errors_of_types():
    modules = [str(file) for file in APP.rglob("*.js")]
    found = await run_node(_CHECK, {"compiler": COMPILER.as_uri(), "files": modules})
    assert [line.removeprefix(f"{ROOT}/") for line in found] == []
