# SPDX-License-Identifier: Apache-2.0
# Completion of the programs for bash.

_sluice_values() { # PREVIOUS CURRENT MORE-TRANSPORTS EQUALS
	case $1 in
	--transport) mapfile -t COMPREPLY < <(compgen -W "auto rdma tcp ${3-}" -- "$2") ;;
	--tos)
		mapfile -t COMPREPLY < <(compgen -W "af11 af12 af13 af21 af22 af23 af31 af32 af33 af41 af42 af43
			cs0 cs1 cs2 cs3 cs4 cs5 cs6 cs7 ef le" -- "$2")
		;;
	--rdma-op) mapfile -t COMPREPLY < <(compgen -W "auto send write-imm write-send" -- "$2") ;;
	--direct | --encrypt) mapfile -t COMPREPLY < <(compgen -W "auto on off" -- "$2") ;;
	--compress)
		[ -n "$4" ] || return 1
		mapfile -t COMPREPLY < <(compgen -W "auto zstd" -- "$2")
		;;
	--compress-choice) mapfile -t COMPREPLY < <(compgen -W "zstd none" -- "$2") ;;
	--print-digest)
		[ -n "$4" ] || return 1
		mapfile -t COMPREPLY < <(compgen -W "xxh128 sha256 md5 adler32" -- "$2")
		;;
	--xattrs)
		[ -n "$4" ] || return 1
		mapfile -t COMPREPLY < <(compgen -W "all" -- "$2")
		;;
	--backup-dir | --target)
		mapfile -t COMPREPLY < <(compgen -d -- "$2")
		compopt -o filenames
		;;
	--key-file | --make-key | --secrets | --rdcp-path | --files-from | --exclude-from | --include-from | \
		--failed | --log-file | --source | --plot | -i | -F | -S)
		mapfile -t COMPREPLY < <(compgen -f -- "$2")
		compopt -o filenames
		;;
	-J) mapfile -t COMPREPLY < <(compgen -A hostname -- "$2") ;;
	--lanes | --depth | --block-size | --rails | --memory | --address | --port-range | --timeout | \
		--connect-timeout | --bwlimit | --exclude | --include | --max-size | --min-size | --max-delete | \
		--suffix | --chmod | --chown | --module | --port | --daemon-port | --size | --compress-level | --wait | --seconds | --key-fd | -w | -l | -P | -o | -e | --rsh) ;;
	*) return 1 ;;
	esac
}

_sluice_common="--transport= --lanes= --depth= --block-size= --rdma-op= --rails= --direct= --memory=
	--address= --port-range= --tos= --encrypt= --compress --compress-level= --compress-choice=
	--timeout= --connect-timeout= --bwlimit= --ipv4 --ipv6 --verbose --quiet --progress --json
	--human-readable --help --version"
_sluice_starts="--rsh= --rdcp-path= --transport= --address= --port-range= --timeout= --connect-timeout=
	--ipv4 --ipv6 --verbose --quiet --json --human-readable --help --version"
_sluice_keys="--key-file= --key-fd= --make-key="

_sluice_trees="--recursive --archive --relative --copy-links --links --whole-file --verify --perms --times --owner
	--group --numeric-ids --devices --hard-links --acls --xattrs --chmod= --chown= --exclude=
	--include= --exclude-from= --include-from= --files-from= --from0 --max-size= --min-size=
	--one-file-system --update --ignore-existing --existing --ignore-non-existing --ignore-times --checksum
	--dry-run --delete --delete-excluded --max-delete= --backup --backup-dir= --suffix= --itemize-changes --print-digest --failed=
	--stats --log-file= --no-perms --no-times --no-owner --no-group --no-devices --no-recursive"

_sluice() {
	local files=1 hosts='' options cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} more='' equals=''
	case ${COMP_WORDS[0]##*/} in
	rdcp)
		more=ssh hosts=:
		options="$_sluice_common $_sluice_trees --preserve --no-target-directory --mkpath
			--remove-source-files --fsync --inplace --sparse --no-sparse --rsh= --rdcp-path=
			--key-file= --daemon-port="
		;;
	rdbench)
		files='' hosts=' '
		options="$_sluice_starts --source= --target= --seconds= --plot= --lanes= --depth=
			--block-size= --rdma-op= --rails= --direct= --memory= --bwlimit= --tos= --encrypt= --progress"
		;;
	rdcheck)
		files='' hosts=' '
		options="$_sluice_starts"
		;;
	rdcpd)
		files=''
		options="--module= --config= --check-config --memory= --log-json --key-file= --secrets= --make-key= --port= --address= --transport= --port-range= --tos=
			--ipv4 --ipv6 --verbose --quiet
			--human-readable --help --version"
		;;
	rdsend) options="$_sluice_common $_sluice_keys --size=" ;;
	*) options="$_sluice_common $_sluice_keys --wait= --mkpath --fsync --inplace" ;;
	esac
	# Bash passes --name=value as three words.
	if [ "$cur" = = ]; then
		cur='' equals=1
	elif [ "$prev" = = ]; then
		prev=${COMP_WORDS[COMP_CWORD - 2]} equals=1
	fi
	_sluice_values "$prev" "$cur" "$more" "$equals" && return
	if [[ $cur == -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
		[[ ${COMPREPLY[0]-} == *= ]] && compopt -o nospace
		return
	fi
	[ -z "$files" ] || mapfile -t COMPREPLY < <(compgen -f -- "$cur")
	[ -z "$hosts" ] || mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY \
		< <(compgen -A hostname -S "${hosts% }" -- "$cur")
	[ -z "$files" ] || compopt -o filenames
}
complete -F _sluice rdcp rdsend rdrecv rdbench rdcheck rdcpd
