package timeline

// ClientEnd notes that the client's side ended, as seen at mono.
func (b *Builder) ClientEnd(e End, mono int64) {
	c := &b.close
	if c.client == Open || e == RST && c.client == FIN {
		if c.client == FIN {
			c.clientGone = true
		}
		c.client = e
	}
	if c.clientAt == 0 {
		c.clientAt = mono
	}
	if c.first == 0 {
		c.first = 1
	}
}

// ServerEnd notes that the server's side ended, as seen at mono.
func (b *Builder) ServerEnd(e End, mono int64) {
	c := &b.close
	if c.server == Open || e == RST {
		c.server = e
	}
	if c.serverAt == 0 {
		c.serverAt = mono
	}
	if c.first == 0 {
		c.first = 2
	}
}

// Harness notes a failure of our own, with the system's name for it.
func (b *Builder) Harness(reason, errno string) { b.close.harness, b.close.errno = reason, errno }

// Unreachable notes that the server could not be reached.
func (b *Builder) Unreachable(reason, errno string, mono int64) {
	b.close.upstream, b.close.errno = reason, errno
	b.close.serverAt = mono
}

// Shutdown notes that the relay stopped with the exchange open.
func (b *Builder) Shutdown(mono int64) {
	b.close.shutdown = true
	if b.close.serverAt == 0 { // a refusal's client may still be there
		b.close.serverAt = mono
	}
}

// Propagated notes that the client's end had been passed on to the server at mono.
func (b *Builder) Propagated(mono int64) {
	if b.close.propagated == 0 {
		b.close.propagated = mono
	}
}

// CaptureEnds notes that what is known of the connection stops here.
func (b *Builder) CaptureEnds(mono int64) {
	b.close.server, b.close.serverAt = Cut, mono
}

// Malformed notes an answer whose framing broke.
func (b *Builder) Malformed(reason string) {
	b.close.lost = reason
	if b.close.serverAt == 0 {
		b.close.serverAt = b.now
	}
}

// Ambiguous notes an answer whose length is declared in two ways.
func (b *Builder) Ambiguous() { b.ambiguous = true }

// Unread notes that the answer's end cannot be known any more.
func (b *Builder) Unread(reason string) {
	b.close.unread = reason
	if b.close.serverAt == 0 {
		b.close.serverAt = b.now
	}
}

// Trouble notes a body that cannot be decoded as declared.
func (b *Builder) Trouble(reason, detail string) {
	b.trouble = append(b.trouble, trouble{reason, detail})
}

// HeadEnd notes the last byte of the answer's head.
func (b *Builder) HeadEnd(off int64) { b.headEnd = place{b.now, off} }

// Ended reports whether the exchange's record was sent out.
func (b *Builder) Ended() bool { return b.done }
