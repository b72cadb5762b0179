import { Migration } from '@mikro-orm/migrations'

export class Migration1 extends Migration {
  async up () {
    this.addSql('create table m1 (id serial primary key, v text)')
    this.addSql("insert into m1 (v) values ('a')")
  }

  async down () { this.addSql('drop table m1') }
}
