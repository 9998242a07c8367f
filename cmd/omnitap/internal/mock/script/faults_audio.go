package script

import (
	"fmt"
	"strconv"
)

// placeholders are the sizes that streaming servers are known to write.
var placeholders = map[string]uint32{"ffffffff": 0xFFFFFFFF, "7fffffff": 0x7FFFFFFF}

// audioFaults are the faults of the samples and of their containers.
func audioFaults() []Fault {
	return []Fault{
		count("lost", "K", "audio", "the last K sample frames of every chunk but the last are missing", -1, func(f *Set) *int { return &f.Lost }),
		count("lost-tail", "K", "audio", "the last K sample frames of the last chunk are missing (what a one-shot decode may do too)", -1, func(f *Set) *int { return &f.LostTail }),
		count("repeat", "K", "audio", "every chunk but the first starts with the K frames that ended the one before", -1, func(f *Set) *int { return &f.Repeat }),
		flag("cumulative", "audio", "every chunk holds all samples so far", func(f *Set) *bool { return &f.Cumulative }),
		flag("whole-repeat", "audio", "a last chunk repeats the whole", func(f *Set) *bool { return &f.WholeRepeat }),
		flag("odd-bytes", "audio", "one byte more than whole samples at the end", func(f *Set) *bool { return &f.OddBytes }),
		count("wrong-rate", "HZ", "audio", "headers and fields declare HZ, the samples stay as they are", -1, func(f *Set) *int { return &f.WrongRate }),
		{Name: "rate-change", Arg: "N:HZ", Where: "audio", Doc: "audio chunk N (from 1) and those that follow declare HZ", set: pair(func(f *Set) *[2]int { return &f.RateChange })},
		{Name: "channel-change", Arg: "N:C", Where: "audio", Doc: "audio chunk N (from 1) and those that follow declare C channels", set: pair(func(f *Set) *[2]int { return &f.ChannelChange })},
		{Name: "placeholder", Arg: "ffffffff|7fffffff|0|SIZE", Where: "wav", Doc: "the data size in WAV headers is a placeholder; SIZE is decimal", set: setPlaceholder},
		flag("header-per-chunk", "raw", "raw WAV bodies and SSE of bare PCM carry a WAV header in every chunk", func(f *Set) *bool { return &f.HeaderEach }),
		count("split-header", "[N]", "raw", "the WAV header of a raw body comes in two HTTP chunks, N bytes and the rest", 10, func(f *Set) *int { return &f.SplitHeader }),
	}
}

// pair reads "N:V", both positive.
func pair(field func(*Set) *[2]int) func(*Set, string) error {
	return func(f *Set, v string) error {
		var n, x int
		if c, err := fmt.Sscanf(v, "%d:%d", &n, &x); err != nil || c != 2 || n < 1 || x < 1 || fmt.Sprintf("%d:%d", n, x) != v {
			return fmt.Errorf("value %q, want N:VALUE", v)
		}
		*field(f) = [2]int{n, x}
		return nil
	}
}

func setPlaceholder(f *Set, v string) error {
	size, known := placeholders[v]
	if !known {
		n, err := strconv.ParseUint(v, 10, 32)
		if err != nil {
			return fmt.Errorf("size %q: %w", v, err)
		}
		size = uint32(n)
	}
	f.Placeholder = &size
	return nil
}
