"""Runs a file's tests: its functions test_*, each with a folder of its own, which it is handed."""
import tempfile


def run(tests, prepare=lambda folder: folder):
    """Of globals(); `prepare` makes what a test is handed from its folder.  Returns the exit status."""
    failed, tests = 0, [(name, function) for name, function in tests.items() if name.startswith("test_")]
    for name, function in tests:
        with tempfile.TemporaryDirectory() as folder:
            try:
                function(prepare(folder))
            except AssertionError as error:
                failed += 1
                print(f"FAILED: {name}: {error}")
    print(f"{len(tests) - failed} passed, {failed} failed")
    return 1 if failed else 0
