//! The program of a filter, run for one call (bpf(2), seccomp(2)).

use std::collections::BTreeSet;

use libc::sock_filter;

/// The name of the machine in linux/audit.h.
pub(super) const MACHINE: u32 =
    if cfg!(target_arch = "x86_64") { 0xc000_003e } else { 0xc000_00b7 };

/// Whether a call is allowed, whatever its other arguments are.
pub(super) fn lets_through(
    program: &[sock_filter],
    number: libc::c_long,
    first: [Option<u64>; 3],
) -> bool {
    /// Maximum number of steps: no filter that is meant to be fast takes more.
    const MOST_STEPS: u32 = 1 << 16;
    let load = |at: u32| -> Option<u32> {
        match at {
            0 => Some(number as u32),
            4 => Some(MACHINE),
            16..40 => {
                let argument = first[(at as usize - 16) / 8]?;
                Some(if at % 8 == 0 { argument as u32 } else { (argument >> 32) as u32 })
            }
            // The address of the call, and the other arguments.
            _ => None,
        }
    };
    let mut steps = 0;
    let mut branches = vec![State { at: 0, a: Some(0), x: Some(0), memory: [Some(0); 16] }];
    let mut seen = BTreeSet::new();
    while let Some(state) = branches.pop() {
        if !seen.insert(state) {
            continue;
        }
        steps += 1;
        let Some(instruction) = program.get(state.at).filter(|_| steps < MOST_STEPS) else {
            return false;
        };
        match state.step(*instruction, load) {
            Step::On(next) => branches.push(next),
            Step::Either(yes, no) => branches.extend([yes, no]),
            Step::End(true) => {}
            Step::End(false) => return false,
        }
    }
    true
}

/// A state of the program; `None` is an unknown number.
#[derive(Clone, Copy, Eq, Ord, PartialEq, PartialOrd)]
struct State {
    at: usize,
    a: Option<u32>,
    x: Option<u32>,
    memory: [Option<u32>; 16],
}

enum Step {
    On(State),
    Either(State, State),
    /// Whether the call is allowed.
    End(bool),
}

impl State {
    /// Classic BPF, as far as the kernel accepts it for filters (seccomp_check_filter()).
    fn step(mut self, instruction: sock_filter, load: impl Fn(u32) -> Option<u32>) -> Step {
        let sock_filter { code, jt, jf, k } = instruction;
        /// Size of struct seccomp_data.
        const LENGTH: u32 = 64;
        let place = k as usize & 15;
        self.at += 1;
        match code {
            // BPF_LD, BPF_LDX: ABS, LEN, IMM, MEM; BPF_ST, BPF_STX.
            0x20 => self.a = load(k),
            0x80 => self.a = Some(LENGTH),
            0x81 => self.x = Some(LENGTH),
            0x00 => self.a = Some(k),
            0x01 => self.x = Some(k),
            0x60 => self.a = self.memory[place],
            0x61 => self.x = self.memory[place],
            0x02 => self.memory[place] = self.a,
            0x03 => self.memory[place] = self.x,
            // BPF_MISC: TAX, TXA.
            0x07 => self.x = self.a,
            0x87 => self.a = self.x,
            // BPF_RET.
            0x06 => return Step::End(is_let_through(Some(k))),
            0x16 => return Step::End(is_let_through(self.a)),
            // BPF_JMP.
            0x05 => self.at += k as usize,
            _ if code & 0x07 == 0x05 => {
                let operand = if code & 0x08 == 0 { Some(k) } else { self.x };
                let [yes, no] =
                    [jt, jf].map(|jump| State { at: self.at + usize::from(jump), ..self });
                let value = self.a.zip(operand).map(|(a, operand)| match code & 0xf0 {
                    0x10 => Some(a == operand),
                    0x20 => Some(a > operand),
                    0x30 => Some(a >= operand),
                    0x40 => Some(a & operand != 0),
                    _ => None,
                });
                return match value {
                    Some(Some(true)) => Step::On(yes),
                    Some(Some(false)) => Step::On(no),
                    Some(None) => Step::End(false),
                    None => Step::Either(yes, no),
                };
            }
            // BPF_ALU.
            _ if code & 0x07 == 0x04 => {
                let operand = if code & 0x08 == 0 { Some(k) } else { self.x };
                self.a = self.a.zip(operand).and_then(|(a, operand)| match code & 0xf0 {
                    0x00 => Some(a.wrapping_add(operand)),
                    0x10 => Some(a.wrapping_sub(operand)),
                    0x20 => Some(a.wrapping_mul(operand)),
                    0x30 => a.checked_div(operand),
                    0x40 => Some(a | operand),
                    0x50 => Some(a & operand),
                    0x60 => a.checked_shl(operand),
                    0x70 => a.checked_shr(operand),
                    0x80 => Some(a.wrapping_neg()),
                    0xa0 => Some(a ^ operand),
                    _ => None,
                });
            }
            _ => return Step::End(false),
        }
        Step::On(self)
    }
}

/// Only SECCOMP_RET_ALLOW and SECCOMP_RET_LOG: the library may not expect an error from a call, and
/// a tracer or a supervisor may do anything.
fn is_let_through(result: Option<u32>) -> bool {
    const ALLOW: u32 = 0x7fff_0000;
    const LOG: u32 = 0x7ffc_0000;
    result.is_some_and(|result| matches!(result & 0xffff_0000, ALLOW | LOG))
}
