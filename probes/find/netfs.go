package find

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"strconv"
	"strings"
)

// maxNet bounds a table of sockets.
const maxNet = 64 << 20

// listeners are the listening sockets of one network namespace, by inode.
type listeners struct {
	unix map[uint64]string
	tcp  map[uint64]Address
}

// listeners reads the tables of the network namespace that a process is in.
func (f procfs) listeners(pid int) (listeners, error) {
	out := listeners{map[uint64]string{}, map[uint64]Address{}}
	b, err := f.read(pid, maxNet, "net", "unix")
	if err != nil {
		return out, err
	}
	parseUnix(b, out.unix)
	for _, name := range []string{"tcp", "tcp6"} {
		b, err := f.read(pid, maxNet, "net", name)
		if err != nil {
			continue // a kernel without IPv6 has no tcp6
		}
		parseTCP(b, out.tcp)
	}
	return out, nil
}

// parseUnix reads /proc/net/unix: "NUM REFS PROTO FLAGS TYPE ST INODE PATH". Lines
// that a path with a line's end broke are passed over.
func parseUnix(b []byte, into map[uint64]string) {
	for line := range bytes.Lines(b) {
		if !bytes.Contains(line, []byte(" 00010000 ")) {
			continue
		}
		var field [7]string
		rest := strings.TrimSuffix(string(line), "\n")
		for i := range field {
			rest = strings.TrimLeft(rest, " ")
			field[i], rest, _ = strings.Cut(rest, " ")
		}
		inode, err := strconv.ParseUint(field[6], 10, 64)
		if err != nil || inode == 0 || field[3] != "00010000" || rest == "" {
			continue
		}
		into[inode] = rest
	}
}

// parseTCP reads /proc/net/tcp and tcp6: the second field is the local address, the
// fourth the state (0A listens), the tenth the inode.
func parseTCP(b []byte, into map[uint64]Address) {
	for line := range bytes.Lines(b) {
		if !bytes.Contains(line, []byte(" 0A ")) {
			continue
		}
		fields := strings.Fields(string(line))
		if len(fields) < 10 || fields[3] != "0A" {
			continue
		}
		inode, err := strconv.ParseUint(fields[9], 10, 64)
		if err != nil || inode == 0 {
			continue
		}
		if a, ok := parseAddress(fields[1]); ok {
			into[inode] = a
		}
	}
}

// parseAddress reads "0100007F:1F90": groups of four bytes in the machine's order.
func parseAddress(s string) (Address, bool) {
	host, port, ok := strings.Cut(s, ":")
	b, err := hex.DecodeString(host)
	if !ok || err != nil || (len(b) != 4 && len(b) != 16) {
		return Address{}, false
	}
	n, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return Address{}, false
	}
	for i := 0; i < len(b); i += 4 {
		binary.BigEndian.PutUint32(b[i:], binary.NativeEndian.Uint32(b[i:]))
	}
	addr, _ := netip.AddrFromSlice(b)
	return Address{Host: addr.Unmap().String(), Port: int(n)}, true
}
