"""What a command's exit code means; every `--help` lists them."""

OK = 0
FAILED = 1
WRONG_USE = 2
PARTLY = 3
STOPPED = 130

MEANINGS = {
    OK: "done",
    FAILED: "failed: the message on standard error says why",
    WRONG_USE: "the command was used wrongly",
    PARTLY: "done, except for images or classes that were refused; each is named",
    STOPPED: "stopped with Ctrl-C",
}
