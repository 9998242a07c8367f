package calibration

// File is calibration.json: every block's raw figures, and what follows from them.
type File struct {
	Schema int    `json:"schema"`
	RunID  string `json:"run_id,omitempty"`
	Config Config `json:"config"`
	// Source says what was sent, OnOver what was asked for where the cost is over budget:
	// trim, stop or report.
	Source string `json:"source"`
	OnOver string `json:"on_over"`
	// Result is that of the last attempt: of the families that are left.
	Result Result `json:"result"`
	// Trimmed are the families that were taken away, in order.
	Trimmed  []Trim    `json:"trimmed"`
	Attempts []Attempt `json:"attempts"`
}

// Trim is a family that was taken away, and why.
type Trim struct {
	Family string `json:"family"`
	Why    string `json:"why"`
}

// Attempt is one series of blocks with the same families.
type Attempt struct {
	// Off are the families that were taken away before it.
	Off    []string `json:"off"`
	Blocks []Block  `json:"blocks"`
	Result Result   `json:"result"`
}
