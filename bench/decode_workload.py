"""A program whose full trace does not repeat itself: parses, compiles and dumps modules of Python's own library."""
import ast
import glob
import json
import re
import sys

nodes = 0
for path in sorted(glob.glob(sys.argv[1] + "/*.py"))[: int(sys.argv[2])]:
    with open(path, encoding="utf8", errors="replace") as file:
        text = file.read()
    tree = ast.parse(text)
    nodes += sum(1 for _ in ast.walk(tree))
    compile(tree, path, "exec")
    json.loads(json.dumps(re.findall(r"\w+", text)))
print(nodes)
