from tests.real.test_work import *
from tests.real.conftest import *
from tests.ralph import ralph as ralph
pytestmark = [pytest.mark.parametrize("agent", ["claude"])]
def test_a(real):
    failing = [{"status": status, "times": 3} for status in (500, 529)]
    turns = [writes("test_greeting.py", TEST), *WRITTEN, promise("GREETING_ACCEPTED"), failing[1], promise("GREETING_ACCEPTED"), rules(GREETS, CALLS)]
    ended = work(real, turns, "--skip", "tester", "--skip", "reviewer", "-m", "3")
    t = real.shown(6); i = t.find("# Greet somebody"); print(t[i-800:i+4500])
    (a,*_ , b) = requests(real, True)
    for r in (requests(real,False)[0], b):
        print(len(json.dumps(r["body"]["messages"])), len(json.dumps(r["body"]["system"])), len(json.dumps(r["body"]["tools"])), {k:v for k,v in r["body"].items() if k not in("messages","system","tools")})
    print(json.dumps(b["body"], indent=1).replace("\\n","\n"))
    assert 0
def test_b(real):
    path = real.ralph.folder / "task.yaml"
    path.write_text(TASK.replace("GREET-1","GREET-2").replace("        check_for: [an empty","        agent: codex\n        check_for: [an empty"))
    e = real.ralph("task", "import", str(path)); print(e)
    print(real.ralph("work", "GREET-2", "--agent", "claude", *REVIEWED, "--max-cost-usd", "1", "--dry-run", via=real._via([], {})))
    ended = real.ralph("work", "GREET-2", "--agent", "claude", *REVIEWED, "--max-cost-usd", "1", via=real._via([*WRITTEN, promise("GREETING_REVIEWED"), rules(REFUSES, CALLS)], {}))
    print(ended.out, ended.err, real.ralph.outcome(), rulings(real))
    assert 0
