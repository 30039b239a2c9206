"""What must hold when things fail: the process is killed, a commit is lost, the store goes away, or it is
no good from the beginning.

`killed.py` is the program that `test_kill.py` kills; the other tests need no program of their own.
"""
