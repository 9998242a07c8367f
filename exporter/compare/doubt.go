package compare

// scope is a set of figures that a doubt is about.
type scope int

const (
	// aboutFirst: the times to first text, first audio and first audible.
	aboutFirst scope = 1 << iota
	// aboutWhole: what grows with the output: JCT, throughput, goodput.
	aboutWhole
	// aboutRTF: time by length of sound.
	aboutRTF
	// aboutSuccess: the success rate.
	aboutSuccess

	aboutTimes = aboutFirst | aboutWhole | aboutRTF
)

// noChange is the sign of a doubt that is about "no difference seen" alone.
const noChange = 2

// doubt is a reason not to believe a change.
type doubt struct {
	scope scope
	// sign of the changes it is about: +1 gains, −1 losses, 0 both, or noChange.
	sign float64
	// none says that it is about "no difference seen" too.
	none bool
	// covers is the size of change, as a logarithm, up to which it may be the cause.
	covers  float64
	verdict Verdict
	reason  string
}

type doubts []doubt

// about is the first doubt about a change of a sign (0 for none) and a size; zero where
// there is none.
func (l doubts) about(s scope, sign, size float64) doubt {
	for _, d := range l {
		switch {
		case d.scope&s == 0, sign == 0 && !d.none, sign != 0 && d.sign != 0 && d.sign != sign, size > d.covers:
		default:
			return d
		}
	}
	return doubt{}
}
