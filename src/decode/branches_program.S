// A program of nothing but branches, every kind of them, for the single-step truth test. No libc; it exits by
// itself after some hundred thousand instructions.
        .text
        .globl  _start
_start:
        mov     $4000, %r15
main_loop:
        call    direct
        lea     indirect(%rip), %rax
        call    *%rax                   // call r64
        call    *pointer(%rip)          // call m64
        mov     %r15, %rdi
        and     $3, %edi
        lea     table(%rip), %rax
        movslq  (%rax,%rdi,4), %rdi
        add     %rax, %rdi
        notrack jmp *%rdi               // a switch, with the prefix compilers put on it
case0:  jmp     joined
case1:  .byte   0xe9                    // jmp rel32
        .long   joined - . - 4
case2:  jmp     *jump_pointer(%rip)     // jmp m64
case3:  nop
joined:
        mov     $5, %ecx
count_down:
        loop    count_down
        xor     %ecx, %ecx
        jrcxz   no_count
        ud2
no_count:
        mov     $3, %edi
        call    recursive
        call    .Lhere                  // fetches its own address: no call for the return stack
.Lhere: pop     %rax
        test    $1, %r15
        .byte   0xf2                    // bnd, a prefixed conditional
        jz      even
        je      never
        .byte   0x0f, 0x85              // jne rel32
        .long   even - (. + 4)
never:  ud2
even:
        push    $7
        mov     $2, %ecx
1:      cmp     $9, %ecx
        loopne  1b
        call    with_immediate
        mov     $39, %eax               // getpid
        syscall
        lea     strings(%rip), %rsi
        lea     target(%rip), %rdi
        mov     $20, %ecx
        rep movsb
        dec     %r15
        jnz     main_loop
        mov     $60, %eax
        xor     %edi, %edi
        syscall

direct:
        repz ret
indirect:
        .byte   0xf2                    // bnd
        ret
with_immediate:
        ret     $8
recursive:
        dec     %edi
        js      1f
        push    %rdi
        call    recursive
        pop     %rdi
1:      ret

        .section .data.rel.ro, "aw"
pointer:
        .quad   indirect
jump_pointer:
        .quad   case3
        .section .rodata
table:
        .long   case0 - table, case1 - table, case2 - table, case3 - table
strings:
        .ascii  "twenty bytes to copy"
        .bss
target: .skip   32
        .section .note.GNU-stack, "", @progbits
