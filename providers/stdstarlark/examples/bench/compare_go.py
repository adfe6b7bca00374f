"""The program of bench_compose.rs under Google's Go Starlark (PyPI starlark-go): parse, evaluate, call, convert. Prints JSON."""

import json
import pathlib
import sys
import time

import starlark_go

runs = int(sys.argv[1])
source = (pathlib.Path(__file__).parent / "compose.star").read_text()
spec = {"teams": [{"name": f"team-{i}", "size": i} for i in range(25)]}
times = []
for _ in range(runs):
    start = time.perf_counter()
    starlark = starlark_go.Starlark(globals={"SPEC": spec, "CONFIG": {"zone": "eu-1", "timeout": 30}})
    starlark.exec(source)
    result = starlark.eval("compose(SPEC, CONFIG)")
    times.append(time.perf_counter() - start)
assert len(result["children"]) == 125 and len(result["edges"]) == 75
times.sort()
print(json.dumps({"runs": runs, "p50_us": round(times[len(times) // 2] * 1e6)}))
