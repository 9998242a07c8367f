package event

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"strconv"
)

// UnknownProbeError is a line whose form is right and whose probe this version does
// not know. Times, process and thread of the event are set, Path is the name.
type UnknownProbeError struct {
	Probe string
}

// Error names the probe.
func (e *UnknownProbeError) Error() string {
	return "unknown probe " + strconv.Quote(e.Probe)
}

// The keys of a line, each needed once.
const (
	hasMono = 1 << iota
	hasPID
	hasTID
	hasComm
	hasProbe
	hasArgs
	hasAll = 1<<iota - 1
)

var keyNames = [...]string{"mono_ns", "pid", "tid", "comm", "probe", "args"}

// Parse reads one line of raw.jsonl into e, which it sets anew: nothing of an
// earlier event stays, and Head and Tail are new slices. Keys and arguments that it
// does not know are passed over; one that is missing, stands twice or has another
// type is an error. A probe that it does not know gives an *UnknownProbeError and an
// event.
func Parse(line []byte, e *Event) error {
	p := parser{scanner: scanner{b: line}, e: e, comm: e.Comm, path: e.Path}
	*e = Event{}
	if err := p.line(); err != nil {
		if _, unknown := errors.AsType[*UnknownProbeError](err); !unknown {
			*e = Event{}
		}
		return err
	}
	return nil
}

// parser fills one event.
type parser struct {
	scanner
	e *Event
	// comm and path are the last event's: names come in runs, and the same text needs
	// no new string.
	comm, path string
	seen       uint
	known      bool
	// args is where the arguments begin, if they came before the probe's name.
	args int
}

func (p *parser) line() error {
	if err := p.object(p.key); err != nil {
		return err
	}
	if p.space(); p.i < len(p.b) {
		return errors.New("something follows the object")
	}
	for i, name := range keyNames {
		if p.seen&(1<<i) == 0 {
			return fmt.Errorf("%s is missing", name)
		}
	}
	if !p.known {
		return &UnknownProbeError{Probe: p.e.Path}
	}
	if p.args > 0 {
		p.i = p.args
		return p.arguments()
	}
	return nil
}

// key takes the value of one key of the line.
func (p *parser) key(name []byte) error {
	switch string(name) {
	case "mono_ns":
		return p.once(hasMono, func() (err error) { p.e.MonoNS, err = p.integer(); return err })
	case "pid":
		return p.once(hasPID, func() (err error) { p.e.PID, err = p.int32(); return err })
	case "tid":
		return p.once(hasTID, func() (err error) { p.e.TID, err = p.int32(); return err })
	case "comm":
		return p.once(hasComm, func() (err error) { p.e.Comm, err = p.text(p.comm); return err })
	case "probe":
		return p.once(hasProbe, p.probe)
	case "args":
		return p.once(hasArgs, p.argsValue)
	default:
		return p.skip(0)
	}
}

// once takes a value that may stand in a line only once.
func (p *parser) once(bit uint, take func() error) error {
	i := 0
	for 1<<i != bit {
		i++
	}
	if p.seen&bit != 0 {
		return fmt.Errorf("%s stands twice", keyNames[i])
	}
	p.seen |= bit
	if err := take(); err != nil {
		return fmt.Errorf("%s: %w", keyNames[i], err)
	}
	return nil
}

func (p *parser) probe() error {
	name, err := p.str()
	if err != nil {
		return err
	}
	if p.e.Probe, p.known = byName[string(name)]; !p.known {
		p.e.Path = string(name)
	}
	return nil
}

// argsValue takes the arguments, or notes where they are until the probe is known.
func (p *parser) argsValue() error {
	if p.known {
		return p.arguments()
	}
	if p.space() != '{' {
		return errors.New("an object was expected")
	}
	p.args = p.i
	return p.skip(0)
}

func (p *parser) arguments() error {
	args := specs[p.e.Probe].args
	var seen uint
	next := 0
	err := p.object(func(name []byte) error {
		i := findArg(args, name, next)
		if i < 0 {
			return p.skip(0)
		}
		if seen&(1<<i) != 0 {
			return fmt.Errorf("%s stands twice", args[i].name)
		}
		seen |= 1 << i
		next = i + 1
		if err := p.value(args[i].in); err != nil {
			return fmt.Errorf("%s: %w", args[i].name, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i := range args {
		if seen&(1<<i) == 0 && !args[i].optional {
			return fmt.Errorf("%s of %s is missing", args[i].name, p.e.Probe)
		}
	}
	return nil
}

// findArg is the index of an argument, -1 where the probe has none of that name. It
// looks first where the order of writing would have it.
func findArg(args []arg, name []byte, next int) int {
	for k := range args {
		i := (next + k) % len(args)
		if args[i].name == string(name) {
			return i
		}
	}
	return -1
}

// value takes one argument.
func (p *parser) value(in field) (err error) {
	e := p.e
	switch in {
	case inPath:
		e.Path, err = p.text(p.path)
	case inSource, inDestination:
		err = p.address(in == inSource)
	case inCall:
		e.Call, err = p.call()
	case inSock:
		e.Sock, err = p.hexNumber()
	case inMore:
		e.More, err = p.boolean()
	case inHead:
		e.Head, err = p.base64()
	case inTail:
		e.Tail, err = p.base64()
	case inFD:
		e.FD, err = p.int32()
	case inMsgType:
		var n int64
		if n, err = p.integer(); err == nil && (n < 0 || n > math.MaxUint8) {
			err = strconv.ErrRange
		}
		e.MsgType = uint8(n)
	default:
		var n int64
		n, err = p.integer()
		*e.slot(in) = n
	}
	return err
}

// slot is where a number of 64 bits is kept.
func (e *Event) slot(in field) *int64 {
	switch in {
	case inEnter:
		return &e.EnterNS
	case inRet:
		return &e.Ret
	case inFlags:
		return &e.Flags
	case inSize:
		return &e.Size
	case inCount:
		return &e.Count
	default:
		return &e.Args[in-inArgs]
	}
}

// address takes one of the two addresses that make the Path of SockState.
func (p *parser) address(source bool) error {
	b, err := p.str()
	if err != nil {
		return err
	}
	if bytes.IndexByte(b, ' ') >= 0 {
		return errors.New("an address was expected")
	}
	switch {
	case p.e.Path == "" && source:
		p.e.Path = string(b) + " "
	case p.e.Path == "":
		p.e.Path = " " + string(b)
	case source:
		p.e.Path = string(b) + p.e.Path
	default:
		p.e.Path += string(b)
	}
	return nil
}

// text takes a string; where it is the same as the last one that one is used.
func (p *parser) text(last string) (string, error) {
	b, err := p.str()
	if err != nil {
		return "", err
	}
	if string(b) == last {
		return last, nil
	}
	return string(b), nil
}

// calls are the names of system calls that need no string of their own.
var calls = [...]string{
	"read", "write", "sendto", "recvfrom", "sendmsg", "recvmsg", "readv", "writev",
	"sendmmsg", "recvmmsg", "send", "recv", "splice", "sendfile",
}

func (p *parser) call() (string, error) {
	b, err := p.str()
	if err != nil {
		return "", err
	}
	for _, c := range calls {
		if string(b) == c {
			return c, nil
		}
	}
	return string(b), nil
}

func (p *parser) int32() (int32, error) {
	n, err := p.integer()
	if err != nil {
		return 0, err
	}
	if n < math.MinInt32 || n > math.MaxInt32 {
		return 0, strconv.ErrRange
	}
	return int32(n), nil
}

func (p *parser) hexNumber() (uint64, error) {
	b, err := p.str()
	if err != nil {
		return 0, err
	}
	if len(b) < 3 || b[0] != '0' || b[1] != 'x' {
		return 0, errors.New("an address 0x… was expected")
	}
	return strconv.ParseUint(string(b[2:]), 16, 64)
}

func (p *parser) base64() ([]byte, error) {
	b, err := p.str()
	if err != nil || len(b) == 0 {
		return nil, err
	}
	out, err := base64.StdEncoding.AppendDecode(nil, b)
	if err != nil {
		return nil, errors.New("base64 was expected")
	}
	return out, nil
}
