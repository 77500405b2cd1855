# Prints what an interactive zsh offers after the typed words.
#
#   zsh -f complete.zsh SITE-FUNCTIONS "seekwire lab r"
zmodload zsh/zpty
export found=$(mktemp) scripts=$1

# In the inner shell: compadd, which receives all candidates, writes those that match to a file.
inner='
    PS1= PS2= LISTMAX=10000
    fpath=($scripts $fpath)
    autoload -Uz compinit && compinit -D -u
    compadd() {
        if [[ ${@[(i)-[AOD]]} -le $# ]]; then builtin compadd "$@"; return; fi
        local matching=()
        builtin compadd -O matching "$@"
        print -rl -- $matching >>$found
        builtin compadd "$@"
    }
    leave() { exit }
    zle -N leave
    bindkey "^I" complete-word "^X" leave
    print rea""dy
'
zpty shell zsh -f -i
zpty -w shell "eval ${(qqqq)inner}"
zpty -r shell line $'*\nready*'
zpty -n -w shell "$2"$'\t'
zpty -n -w shell $'\C-X'
while zpty -r shell line 2>/dev/null; do :; done
cat $found
rm -f $found
