"""An agent at work, without key or network: `make demo` runs it, on a copy of the workspace.

The model is scripted; everything else is real: the loop, the tools, the gate, the sub-agent, the terminal. It is what
`forge run PROMPT --model scripted:conversation.yaml --policy rules` shows.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from forge.cli import perform

HERE = Path(__file__).parent
PROMPT = "How did our regions do in the first quarter? Is anything wrong?"


def main() -> int:
    print(f'$ forge run "{PROMPT}"\n', flush=True)
    with tempfile.TemporaryDirectory(prefix="forge-demo-") as folder:
        workspace = Path(folder) / "workspace"
        shutil.copytree(HERE / "workspace", workspace)
        given = ["--model", f"scripted:{HERE / 'conversation.yaml'}", "--policy", str(HERE / "rules")]
        code = perform(["run", PROMPT, *given, "--workspace", str(workspace)])
    print("\nIt worked on a copy that is gone by now. With a model of your own: .venv/bin/forge run")
    return code


sys.exit(main())
