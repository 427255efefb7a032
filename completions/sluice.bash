# SPDX-License-Identifier: Apache-2.0
# Completion of rdcp, rdsend and rdrecv for bash.

_sluice_values() { # PREVIOUS CURRENT
	case $1 in
	--transport) mapfile -t COMPREPLY < <(compgen -W "auto rdma tcp ${3-}" -- "$2") ;;
	--key-file | --make-key | --rdcp-path | -i | -F | -S)
		mapfile -t COMPREPLY < <(compgen -f -- "$2")
		compopt -o filenames
		;;
	-J) mapfile -t COMPREPLY < <(compgen -A hostname -- "$2") ;;
	--lanes | --depth | --block-size | --memory | --address | --port-range | --timeout | \
		--connect-timeout | --bwlimit | --size | --wait | --key-fd | -w | -l | -P | -o | -e | --rsh) ;;
	*) return 1 ;;
	esac
}

_sluice_common="--transport= --lanes= --depth= --block-size= --memory= --address= --port-range=
	--timeout= --connect-timeout= --bwlimit= --ipv4 --ipv6 --verbose --quiet --progress --json
	--help --version"
_sluice_keys="--key-file= --key-fd= --make-key="

_sluice() {
	local options cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} more=
	case ${COMP_WORDS[0]##*/} in
	rdcp)
		more=ssh
		options="$_sluice_common --preserve --no-target-directory --mkpath
			--remove-source-files --fsync --inplace --sparse --no-sparse --rsh= --rdcp-path="
		;;
	rdsend) options="$_sluice_common $_sluice_keys --size=" ;;
	*) options="$_sluice_common $_sluice_keys --wait= --mkpath --fsync --inplace" ;;
	esac
	# --name=value comes as three words.
	if [ "$cur" = = ]; then
		cur=
	elif [ "$prev" = = ]; then
		prev=${COMP_WORDS[COMP_CWORD - 2]}
	fi
	_sluice_values "$prev" "$cur" "$more" && return
	if [[ $cur == -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
		[[ ${COMPREPLY[0]-} == *= ]] && compopt -o nospace
		return
	fi
	mapfile -t COMPREPLY < <(compgen -f -- "$cur")
	[ -z "$more" ] || mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY \
		< <(compgen -A hostname -S : -- "$cur")
	compopt -o filenames
}
complete -F _sluice rdcp rdsend rdrecv
