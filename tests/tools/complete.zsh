# usage: zsh -f complete.zsh FOLDER LINE EXPECTED: types the line and a tab in a zsh that has FOLDER/_dodona; waits for EXPECTED.
zmodload zsh/zpty
zpty inner zsh -f -i
zpty -w inner "fpath=(${(q)1} \$fpath); autoload -Uz compinit; compinit -u -D; print loa''ded"
zpty -r inner seen '*loaded*'
zpty -w -n inner "$2"$'\t'
zpty -r inner seen "*$3*"
zpty -d inner
