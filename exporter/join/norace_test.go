//go:build !race

package join

// raceDetector says that the tests are slowed down by the race detector.
const raceDetector = false
