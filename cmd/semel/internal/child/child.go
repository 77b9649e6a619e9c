// Package child has what worker processes need of the system that starts them: to end with their parent, and to be asked
// to end.
package child
