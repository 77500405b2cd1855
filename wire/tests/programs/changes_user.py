"""Becomes another user, as servers that start as root do, and then another script.

usage: changes_user.py USER SCRIPT [ARGUMENT...]
"""

import os
import runpy
import sys

user = int(sys.argv[1])
os.setgroups([])
os.setgid(user)
os.setuid(user)
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
