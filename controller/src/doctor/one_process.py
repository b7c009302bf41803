# The grader that many trainers have: program and tests in one process, whose exit code and output are believed.
# It runs only as a control of `doctor --prove`, inside a container. SOURCE and TESTS stand above this text.
import json
import sys


def grade(source, tests):
    scope = {"__name__": "program"}
    exec(source, scope)
    results = []
    for test in tests:
        try:
            exec(test, scope)
            results.append(True)
        except Exception:
            results.append(False)
    return all(results)


passed = grade(SOURCE, TESTS)  # noqa: F821
print(json.dumps({"verdict": "passed" if passed else "failed", "reward": float(passed)}))
sys.exit(0 if passed else 1)
