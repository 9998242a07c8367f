package http1

import "errors"

// ErrGap means that bytes were not kept where framing cannot be passed over.
var ErrGap = errors.New("bytes not analysed")

// hold keeps what a client sends behind a request that asks for an upgrade:
// only the answer says whether it is a next request or the tunnel's first bytes.
func (p *Parser) hold(b []byte) int {
	if len(p.held)+len(b) > maxHeld {
		p.loseAt(ErrHeadSize, p.off+int64(len(b)))
		return len(b)
	}
	p.held = append(p.held, b...)
	return len(b)
}

// Upgrade turns a holding parser into a tunnel and hands over what was held.
func (p *Parser) Upgrade() {
	p.waiting = false
	if p.st == stLost {
		return
	}
	p.st = stTunnel
	p.release()
}

// Resume reads on in HTTP after an upgrade that was refused.
func (p *Parser) Resume() {
	p.waiting = false
	if p.st != stHeld {
		return
	}
	p.st = stStart
	p.release()
}

// Stop makes the parser ignore the rest, without a report.
func (p *Parser) Stop() {
	p.buf, p.held = nil, nil
	p.st = stLost
}

func (p *Parser) release() {
	held := p.held
	p.held = nil
	p.off -= int64(len(held))
	p.Feed(held)
}
